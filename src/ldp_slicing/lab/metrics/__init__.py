"""How good a result is: image quality, shares with confidence intervals, face verification and recognition."""
