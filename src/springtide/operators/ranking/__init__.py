"""The k most frequent or heaviest values of every window."""
