"""Kafka: topics as sources and as sinks. Built on `springtide.connectors`, as anybody's connectors are; needs `springtide[kafka]`."""
