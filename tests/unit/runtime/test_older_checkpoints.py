"""Checkpoints of the version before this code was rebuilt still start: two are kept in `tests/golden/checkpoints`."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.elastic.settings import Elastic
from springtide.exchange.hashing import fingerprint
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.state.manifest import Manifest

GOLDEN = Path(__file__).parents[2] / "golden" / "checkpoints"
START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = [{"src": "abc"[i % 3], "x": i, "ts": START + timedelta(minutes=7 * i)} for i in range(60)]
SCHEMA = {"src": pl.String, "x": pl.Int64, "ts": st.TIME}
COMMITTED = 4
"""The last epoch of the checkpoints. The rows that went to the sinks up to then are beside each, in `rows.json`."""


def query() -> tuple[st.Query, list[dict[str, Any]]]:
    """A query with state of most kinds; its rows go to the list."""
    given: list[dict[str, Any]] = []
    calls = st.source("calls", st.memory(ROWS, schema=SCHEMA), ts="ts")
    hourly = calls.aggregate(
        by="src", window=st.sliding("2h", every="30m"), n=st.count(), x=st.sum("x"), least=st.min("x"), name="hourly"
    )
    last = calls.aggregate(by="src", window=st.last_n(3), n=st.sum("x"), all=st.collect("x"), name="last")
    talks = calls.aggregate(by="src", window=st.session("20m"), n=st.count(), name="talks")
    pairs = calls.join(hourly, on="src", within="1h", name="pairs")
    top = calls.top_k(2, "src", window=st.tumbling("1h"), weight="x", name="top")
    sinks = [
        stream.to(st.callback(lambda rows, epoch, to=name: given.extend(_plain(to, rows))), name=f"{name}-rows")
        for name, stream in {"hourly": hourly, "last": last, "talks": talks, "pairs": pairs, "top": top}.items()
    ]
    return st.Query("before", *sinks), given


def _plain(step: str, rows: pl.DataFrame) -> list[dict[str, Any]]:
    return [{"step": step, **row} for row in json.loads(rows.write_json())]


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.fixture(params=["epoch", "never"])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A checkpoint whose state was durable with every epoch, with old windows at their old owners; and one whose state is lost, with the log."""
    with zipfile.ZipFile(GOLDEN / f"{request.param}.zip") as packed:
        packed.extractall(tmp_path)
    if json.loads((tmp_path / "checkpoint" / "springtide.json").read_bytes())["identity"]["hash"] != fingerprint():
        pytest.skip("this version of Polars hashes otherwise, so the checkpoint is refused")
    return tmp_path


def test_it_goes_on_with_the_rows_that_are_missing(before: Path) -> None:
    chosen, given = query()
    engine = inprocess.run(chosen.plan(buckets=8), before / "checkpoint", Options(elastic=Elastic()))
    assert engine.manifest.ended
    rows = json.loads((before / "rows.json").read_bytes()) + given
    chosen, expected = query()
    result = chosen.run_reference()
    del expected[:]
    for sink in ("hourly", "last", "talks", "pairs", "top"):
        expected += _plain(sink, result.rows(f"{sink}-rows"))
    assert _sorted(rows) == _sorted(expected)


def test_its_manifest_is_read_and_written_as_it_was(before: Path) -> None:
    (newest,) = (before / "checkpoint" / "manifests").glob(f"{COMMITTED:09d}*")
    data = newest.read_bytes()
    assert json.loads(Manifest.decode(data).encode()) == json.loads(data)
