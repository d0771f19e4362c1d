"""Values from outside, of sources and of user code: whether they fit a column, and what is said if not."""
