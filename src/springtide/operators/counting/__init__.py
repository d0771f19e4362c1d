"""Aggregates over windows of n tuples: tuples are numbered in the total order."""
