"""The k most frequent values, or heaviest, of every window."""
