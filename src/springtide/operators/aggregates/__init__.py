"""Partial results of aggregate functions: how they come from tuples, how they are merged, and how a value comes from them."""
