"""What sources and sinks of databases and lakes share: how to get there, and with which secrets."""
