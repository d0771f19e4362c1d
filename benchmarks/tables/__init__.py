"""Tables of databases and lakes, exactly once, beside what is quickest without that."""
