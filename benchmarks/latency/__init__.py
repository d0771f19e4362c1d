"""How soon a window's rows are with the reader."""
