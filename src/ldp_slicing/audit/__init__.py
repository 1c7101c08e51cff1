"""Does the promise hold? Exact enumeration, statistics with stated error rates, and faults that must be found."""
