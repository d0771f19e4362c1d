"""What runs inside a task, on Arrow and Polars: no Spark, no I/O but state segments."""
