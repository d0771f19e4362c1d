"""Builds the steps for the methods of `Stream` and checks their arguments; one module per family."""
