"""Epochs on Spark: one job per epoch, blobs through Spark's shuffle."""
