"""Topics: what comes through a broker on the same machine."""
