"""Stores for tests."""
