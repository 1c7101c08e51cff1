"""The analyst's side: train on releases, attack them and measure. It uses releases, and public images as sources."""
