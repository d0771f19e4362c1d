"""The steps that the methods of `Stream` make: arguments checked, one module per family."""
