"""What a user writes: streams, operators, windows, aggregates. Frozen, validated, without Spark."""
