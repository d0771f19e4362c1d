"""Checkpoints in an object store, and nodes that share nothing else."""
