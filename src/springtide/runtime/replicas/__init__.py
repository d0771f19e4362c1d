"""Active replication (SM-5): several runs of one query at the same time, each with its own checkpoint, that together publish the rows of one run."""
