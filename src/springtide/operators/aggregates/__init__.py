"""Partial results of aggregate functions: how they are made from tuples, how they are merged, and how a value is computed from them."""
