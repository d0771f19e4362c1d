"""Aggregates over sessions: partial results of pieces that are joined as they grow."""
