"""The `springtide` command: thin, one command per file. Nobody imports this package."""

from springtide.cli.app import main

__all__ = ["main"]
