"""Springtide beside what one would take instead: Flink, Spark's own operators, and plain Polars in one batch as the limit."""
