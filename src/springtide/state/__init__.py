"""State at rest: segments, manifests, the checkpoint that holds them. Arrow and JSON only; nothing is unpickled."""
