"""How tuples travel between instances: hashed to buckets, dealt out, packed into blobs, and let through the gate in order of time."""
