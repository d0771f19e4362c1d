"""Rows to tables of databases: rows and the epoch's entry in one transaction, so that each row arrives exactly once."""
