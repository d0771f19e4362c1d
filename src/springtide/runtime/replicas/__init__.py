"""Active replication (SM-5): several runs of one query at the same time, each with a checkpoint of its own, that give the rows of one."""
