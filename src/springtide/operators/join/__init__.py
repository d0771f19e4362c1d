"""Joins by keys, over a window of time or over the last n tuples."""
