"""What does each caller talk in ten minutes? From a Kafka topic to two PostgreSQL tables, each row exactly once, whatever dies on the way.

One table gets a row for each caller and ten minutes, the other keeps the latest of each caller.

    make pipeline

starts a broker and a database, fills the topic while the query runs, changes its instances, kills it, lets it go on, and compares the
tables with a sequential run. With a broker and a database of your own:

    export KAFKA_SERVERS=localhost:9092 DATABASE_URL=postgresql://localhost/calls
    springtide explain examples/kafka_to_postgres.py
    springtide run examples/kafka_to_postgres.py --elastic --checkpoint ckpt
"""

import os

import polars as pl

import springtide as st

SERVERS = os.environ.get("KAFKA_SERVERS", "localhost:9092")
DATABASE = os.environ.get("DATABASE_URL", "postgresql://localhost/calls")

CALLS = {"src": pl.String, "seconds": pl.Int64, "ts": st.TIME}

calls = st.source("calls", st.kafka(SERVERS, "calls", schema=CALLS), ts="ts")
talk = calls.aggregate(by="src", window=st.tumbling("10m"), seconds=st.sum("seconds"), calls=st.count(), name="talk")
query = st.Query(
    "kafka-to-postgres",
    talk.to(st.postgres_sink(DATABASE, "talk", create=True), name="every"),
    talk.to(st.postgres_sink(DATABASE, "latest", keys="src", create=True), name="latest"),
    calls.rejected.to(st.kafka_sink(SERVERS, "calls.rejected"), name="rejected"),
)


if __name__ == "__main__":
    with query.start(elastic=True) as run:  # on Spark, on this machine; Ctrl-C ends it, the next start goes on
        run.wait()
