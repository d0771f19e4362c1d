"""A page that shows a query while it runs, and afterwards: what its checkpoint says, drawn. See `docs/page.md`.

It reads what the command line reads (snapshots, history, manifests) and writes nothing but commands. It runs in a process of its own.
"""
