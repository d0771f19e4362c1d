"""Running a query: planned (pure), on Spark, in-process, and by the sequential reference."""
