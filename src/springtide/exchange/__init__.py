"""How tuples travel between instances: hashed to buckets, distributed to instances, packed into blobs, and let through the gate in order of time."""
