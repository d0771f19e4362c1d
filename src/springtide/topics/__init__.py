"""Kafka: topics as sources and as sinks. Built on `springtide.connectors`, as yours would be; needs `springtide[kafka]`."""
