"""Decisions about instances and buckets. Pure: no Spark, no clock, no threads; the same live and in the simulator."""
