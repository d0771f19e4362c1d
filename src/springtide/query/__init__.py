"""What users write: streams, operators, windows and aggregates. Frozen, validated, independent of Spark."""
