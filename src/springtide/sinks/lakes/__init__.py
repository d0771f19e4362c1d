"""Rows to tables of data lakes, which are files with a log: the epoch's entry is in the table's own log, in one commit with the rows."""
