"""How good a result is: image quality, shares with confidence intervals and face verification."""
