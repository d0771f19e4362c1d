"""The simulator: the same manager and policies against a model of the cluster, driven by a load trace."""
