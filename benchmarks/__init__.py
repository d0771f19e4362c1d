"""Benchmarks: `make bench NAME=heavy-callers`. Each compares in one run on one machine and prints one JSON line last."""
