"""Linear Road (Arasu et al., VLDB 2004): tolls that follow the traffic of L expressways (SE-8)."""
