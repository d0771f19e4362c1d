"""Aggregates over sliding windows of time: partial results per key and pane."""
