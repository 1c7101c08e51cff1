"""A set of sources to a set of releases."""
