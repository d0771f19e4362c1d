"""docs/contributing.md keeps its word: its code, in files outside of the package, adds one of each, and all of it runs in one query."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import springtide as st
from springtide.cli.app import app
from springtide.operators import registry
from springtide.query.types import TS
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.testing import compare

PAGE = Path(__file__).parents[2] / "docs" / "contributing.md"


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The modules of the page, imported from a folder of their own; what they registered is taken back."""
    folder = tmp_path / "outside"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(registry, "_WINDOWS", dict(registry._WINDOWS))
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
    found = re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```$", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    names = {name: f"outside_{name}" for name, _ in found}
    for name, code in found:
        (folder / f"{names[name]}.py").write_text(code, encoding="utf-8")
    yield SimpleNamespace(**{name: importlib.import_module(module) for name, module in names.items()})
    for module in names.values():
        sys.modules.pop(module, None)


def rows_in(folder: Path, schema: pl.Schema) -> pl.DataFrame:
    lines = [
        json.loads(line) for file in sorted(folder.glob("*.json")) for line in file.read_text("utf-8").splitlines()
    ]
    return pl.DataFrame(lines, schema_overrides={"even": pl.Boolean}).select([c for c in schema if c != TS])


def test_one_of_each_runs_and_gives_the_rows_of_the_reference(added: SimpleNamespace, tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    out.mkdir()
    numbers = st.source("numbers", added.numbers.Numbers(100), ts="ts")
    per_parity = numbers.aggregate(
        by="even", window=added.everything.Everything(), n=st.count(), far=added.span.span("x"), last=st.last("x")
    )
    per_minute = numbers.aggregate(window=st.sliding("20s", every="10s"), far=added.span.span("x"))
    late = st.memory_sink()
    whole = per_parity.select("even", "n", "far", "last")
    query = st.Query("added", whole.to(added.epochs.Epochs(out)), per_minute.to(late, name="windows"))
    options = Options(
        rows_per_epoch=7, elastic=st.Elastic(policy=added.doubling.Doubling(4), every=0, grace=0, confirmations=1)
    )
    engine = run(query.plan(), checkpoint, options)

    expected = query.run_reference()
    everything = expected.rows(next(name for name in expected.sinks if name != "windows")).drop(TS).sort("even")
    assert everything.rows() == [(False, 50, 98, 99), (True, 50, 98, 98)]
    assert rows_in(out, whole.schema).sort("even").rows() == everything.rows()
    compare(late.rows(), expected.rows("windows"))
    instances = [m.instances for m in engine.manifest.maps.values()]
    assert max(instances) > 1  # the policy was asked

    shown = CliRunner().invoke(app, ["epoch", str(checkpoint)])
    assert (shown.exit_code, shown.output.strip()) == (0, str(engine.manifest.epoch))


def test_an_operator_goes_on_from_a_checkpoint(added: SimpleNamespace, tmp_path: Path) -> None:
    """The window's state is all in its tables: a run that stops in the middle is gone on with by another."""
    sink = st.memory_sink()
    numbers = st.source("numbers", added.numbers.Numbers(100), ts="ts")
    totals = numbers.aggregate(by="even", window=added.everything.Everything(), s=st.sum("x"), far=added.span.span("x"))
    query = st.Query("totals", totals.to(sink))
    for epochs in (3, 5, 1000):
        begun = 0

        def some(engine: Any, epochs: int = epochs) -> bool:
            nonlocal begun
            begun += 1
            return begun <= epochs

        run(query.plan(), tmp_path / "checkpoint", Options(instances=epochs % 3 + 1, rows_per_epoch=7), between=some)
    compare(sink.rows(), query.run_reference().rows())


def test_a_window_without_an_operator_is_refused(added: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_WINDOWS", {})
    numbers = st.source("numbers", st.memory(schema={"x": pl.Int64, "ts": st.TIME}), ts="ts")
    step = numbers.aggregate(window=added.everything.Everything(), n=st.count())
    plan = st.Query("q", step.to(st.memory_sink())).plan()
    with pytest.raises(TypeError, match="register_window"):
        registry.check_runs(plan)


def test_a_function_says_what_it_takes(added: SimpleNamespace) -> None:
    texts = st.source("texts", st.memory(schema={"x": pl.String, "ts": st.TIME}), ts="ts")
    with pytest.raises(st.QueryError, match="signed integers"):
        texts.aggregate(window=st.tumbling("1m"), far=added.span.span("x"))
