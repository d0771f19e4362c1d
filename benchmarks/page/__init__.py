"""The engine by itself: its floor, its growth, its endurance."""
