"""The analyst's side: what can be learnt from releases. It never needs a source that it was not given for research."""
