"""Data sets in their published layouts, read from a folder that the user names.

Nothing is downloaded, and no code in a data file is run.
"""
