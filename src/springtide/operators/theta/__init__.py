"""Joins by any predicate, over a window of time or over the last n tuples."""
