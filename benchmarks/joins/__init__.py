"""Joins without a key: ScaleJoin's band join (ST-6), StreamCloud's Cartesian Product (SC-13)."""
