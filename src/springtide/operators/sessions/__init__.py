"""Aggregates over sessions: partial results of pieces that grow together."""
