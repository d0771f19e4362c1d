"""Elasticity measured: reconfigurations, balancing, clusters."""
