"""The analyst's side: train on releases, attack them, measure the results. Sources here are public images."""
