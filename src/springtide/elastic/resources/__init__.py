"""Where tasks run: slots of this machine, executors of a cluster. Only `spark.py` depends on Spark."""
