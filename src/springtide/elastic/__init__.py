"""What decides about instances and buckets. Pure: no Spark, no clock, no thread; the same live and in the simulator."""
