"""Values from outside, from sources and user code: whether they fit a column, and what to say if they do not."""
