"""Top-k over page views (SEEP, open loop)."""
