"""Aggregates over windows of time that slide: partial results per key and pane."""
