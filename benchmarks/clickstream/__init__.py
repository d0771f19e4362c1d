"""Click streams (StreamMine3G)."""
