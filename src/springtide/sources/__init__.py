"""Where tuples come from: one connector per file."""
