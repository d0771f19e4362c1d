"""Call records (StreamCloud, table II)."""
