"""Replicas that read a topic and write to another, with a real broker (SM-5): whoever dies or sleeps in the middle of a transaction, a reader of committed records sees each row once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.runtime.replicas import group as groups
from springtide.runtime.replicas.group import Group
from springtide.state.stores import Store
from springtide.testing import compare
from springtide.topics.sink import KafkaTarget
from tests.kafka.broker import Topics
from tests.unit.runtime.replicas.test_replicas import Died, die_at

SCHEMA = {"k": pl.Int64, "x": pl.Int64, "ts": st.TIME}
ROWS = 40


class Replicas:
    """Replicas of a query from a topic to a topic."""

    def __init__(self, topics: Topics, folder: Path) -> None:
        self.topics, self.folder = topics, folder
        self.source, self.target = topics.new(partitions=2), topics.new(partitions=2)
        for i in range(ROWS):
            row = {"k": i % 3, "x": i * 7 % 11, "ts": f"2024-05-01T00:00:{i:02d}"}
            topics.put(self.source, [json.dumps(row).encode()], i % 2)

    def query(self) -> st.Query:
        topic = st.kafka(self.topics.servers, self.source, schema=SCHEMA, end="now")
        sums = st.source("rows", topic, ts="ts").aggregate(by="k", window=st.tumbling("5s"), total=st.sum("x"))
        return st.Query("q", sums.to(st.kafka_sink(self.topics.servers, self.target), name="out"))

    def run(self, name: str, epochs: int | None = None, instances: int = 1) -> Engine:
        """Run a replica up to an epoch, or to its end."""
        replica = st.Replicated(self.folder / "group", name, after="10ms")
        return inprocess.run(
            self.query().plan(buckets=4),
            self.folder / name,
            Options(instances, rows_per_epoch=4, replica=replica),
            between=None if epochs is None else lambda e: e.manifest.epoch + 1 < epochs,
        )

    def by(self) -> list[str]:
        """Who published each epoch."""
        store = Store.at(self.folder / "group")
        return [json.loads(store.read(path))["by"] for path in store.list(groups.DONE)]

    def check(self) -> None:
        wanted = self.query().run_reference().rows()
        found = [json.loads(m.value()) for m in self.topics.get(self.target)]
        starts = wanted.with_columns(pl.col("window_start").dt.strftime("%Y-%m-%dT%H:%M:%S"))
        keys = ["k", "window_start"]
        rows = pl.DataFrame(found).with_columns(pl.col("window_start").str.slice(0, 19))
        compare(rows.select(*keys, "total"), starts.select(*keys, "total"))


@pytest.mark.parametrize(("owner", "step"), [(KafkaTarget, "swap"), (Group, "finish")], ids=["before", "after"])
def test_a_transaction_of_a_dead_replica_is_finished_or_done_again(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str
) -> None:
    replicas = Replicas(topics, tmp_path)
    replicas.run("a", 3)
    with monkeypatch.context() as patch:
        die_at(patch, owner, step, after=False)
        patch.setattr(Engine, "close", lambda self: self.storage.release())
        with pytest.raises(Died):
            replicas.run("a")
    replicas.run("b", 6, instances=3)
    replicas.run("a")
    replicas.check()
    assert {*replicas.by()} == {"a", "b"}


def test_a_replica_that_slept_before_its_transaction_does_not_write_it(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas, swap, slept = Replicas(topics, tmp_path), KafkaTarget.swap, list[int]()

    def sleepy(self: KafkaTarget, before: Any, after: Any, publication: Any) -> bool:
        if publication is not None and publication.epoch >= 2 and not slept:
            slept.append(publication.epoch)
            replicas.run("b", slept[0] + 3)
        return swap(self, before, after, publication)

    monkeypatch.setattr(KafkaTarget, "swap", sleepy)
    replicas.run("a")
    assert slept
    assert replicas.by()[: slept[0] + 3] == ["a"] * slept[0] + ["b"] * 3
    replicas.check()
