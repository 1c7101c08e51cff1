"""Audits: exact enumeration, statistics with stated error rates, checks of a folder of releases, and planted faults."""
