"""`python -m springtide.cli` is the same as `springtide`."""

from springtide.cli import main

main()
