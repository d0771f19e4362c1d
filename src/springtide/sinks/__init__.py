"""Where rows go: one connector per file."""
