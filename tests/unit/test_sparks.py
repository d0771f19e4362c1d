"""What a query can run on, and what is refused before anything is touched."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import springtide as st
from springtide.query.errors import QueryError
from springtide.sparks import check_session, is_connect


def query() -> st.Query:
    x = st.source("x", st.memory(schema={"n": int, "ts": st.TIME}), ts="ts")
    return st.Query("q", x.to(st.memory_sink()))


def connect_session() -> Any:
    """A session of Spark Connect: it needs no server before it is asked for something. A stand-in where its packages are not installed."""
    try:
        from pyspark.sql.connect.session import SparkSession
    except (ImportError, SystemExit):  # where pytest runs tests in several processes, PySpark takes that for doctests
        return type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    return SparkSession("sc://127.0.0.1:1")


def test_a_connect_session_is_refused_with_what_to_do(tmp_path: Path) -> None:
    session = connect_session()
    assert is_connect(session)
    with pytest.raises(QueryError, match=r"step q \(query\): .*Spark Connect .*; run the program"):
        query().start(session, checkpoint=tmp_path / "ckpt")
    assert not (tmp_path / "ckpt").exists()


@pytest.mark.parametrize("thing", ["local[2]", 7])
def test_what_is_no_session_is_refused(thing: object, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"not a Spark session; .*query\.start\(st\.spark_session"):
        query().start(thing, checkpoint=tmp_path / "ckpt")
    assert not (tmp_path / "ckpt").exists()


@pytest.mark.parametrize(("version", "refused"), [("3.5.9", True), ("4.0.0", False), ("4.3.0", False)])
def test_a_spark_that_is_too_old_is_refused(version: str, refused: bool) -> None:
    session = SimpleNamespace(sparkContext=None, version=version)
    if not refused:
        check_session("q", session)
        return
    with pytest.raises(QueryError, match=r"step q.*Spark 3\.5\.9; .*4\.0"):
        check_session("q", session)
