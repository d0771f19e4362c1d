"""`springtide run` as people use it: a process of its own, and others that look at it and tell it what to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from urllib.request import urlopen

import polars as pl
import pytest
from typer.testing import CliRunner

import springtide
import springtide as st
from springtide.cli.app import app
from tests.machine import LONG, free_port
from tests.wording import says

pytestmark = pytest.mark.spark

SOURCE = Path(springtide.__file__).parents[1]

PROGRAM = """
    from pathlib import Path

    import polars as pl
    import springtide as st
    from words import greeting

    HERE = Path(__file__).parent

    def numbers(stream, first, count):
        i = pl.int_range(first, first + count, eager=True)
        return pl.DataFrame({"k": i % 7, "n": i, "ts": (i * 100_000).cast(st.TIME)})

    def note(rows, epoch):
        with open(HERE / "noted", "a") as file:
            file.write(f"{greeting} {rows.height}\\n")

    def build(name, **options):
        x = st.source("x", st.generate(numbers, **options), ts="ts")
        per_key = x.aggregate(by="k", window=st.tumbling("1m"), n=st.sum("n"), name="sums")
        return st.Query(name, per_key.to(st.parquet_sink(HERE / "out")), per_key.to(st.callback(note), name="note"))

    short = build("short", rate=None, total=30_000)
    endless = build("endless", rate=2_000)
"""


POLICY = """
    import springtide as st
    from springtide.elastic.policies.policy import Trigger

    class Upwards:
        def decide(self, snapshot, history):
            n = snapshot.subqueries["sums"].instances + 1
            return [st.Proposal("sums", "more is better", Trigger("rows", 7, 100), instances=n)]
"""


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), "PYSPARK_PYTHON": sys.executable, "TMPDIR": str(folder)}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "words.py").write_text("greeting = 'rows:'\n")
    (tmp_path / "program.py").write_text(dedent(PROGRAM))
    return tmp_path / "program.py"


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "springtide.cli", *map(str, arguments)]


def ask(*arguments: object) -> str:
    """Run a command in this process: another one than that of the query."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], prog_name="springtide")
    assert result.exit_code == 0, result.output
    return result.output


@contextmanager
def started(folder: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Have a command at work; it is gone afterwards."""
    process = subprocess.Popen(
        command(*arguments), env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], text: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    pytest.fail(f"{text!r} never came: {''.join(lines)}\n{process.stderr.read() if process.stderr else ''}")


def test_bounded_query_in_a_pipe(program: Path, tmp_path: Path) -> None:
    ckpt = tmp_path / "ckpt"
    run = ["run", f"{program}:short", "--checkpoint", ckpt, "--master", "local[2,4]", "--instances", 2]
    done = subprocess.run(
        command(*run, "--instances", "sums=3", "--rows-per-epoch", 8_000),
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, *lines = done.stdout.splitlines()
    assert first == f"short: starting Spark; checkpoint {ckpt}"
    assert "\x1b" not in done.stdout
    assert any("epoch 3  in 30,000 " in line for line in lines)
    summary = lines[lines.index("short has come to the end of its input") :]
    assert summary[1].startswith("  epochs      4 in ")
    assert summary[2].startswith("  rows in     30,000, ")
    assert summary[4:6] == ["  late        0", "  rejected    0"]
    assert f"parquet {tmp_path / 'out'}" in done.stdout

    rows = pl.read_parquet(tmp_path / "out")  # 30,000 rows, ten per second, 50 minutes
    assert (rows.height, rows["n"].sum()) == (50 * 7, sum(range(30_000)))
    assert all(line.startswith("rows: ") for line in (tmp_path / "noted").read_text().splitlines())
    assert "WARN" in (ckpt / "logs" / "spark.log").read_text()  # Spark's start-up noise went there

    status = ask("status", ckpt)
    assert status.startswith("query short, ended with its input")
    assert [line.split()[:2] for line in status.splitlines()[-2:]] == [["x", "2"], ["sums", "3"]]
    assert ask("state", ckpt, "sums") == "sums after epoch 3: 0 rows\n"


def test_endless_query_is_scaled_and_stopped_by_others(program: Path, tmp_path: Path) -> None:
    ckpt = tmp_path / "ckpt"
    run = ["run", f"{program}:endless", "--checkpoint", ckpt, "--master", "local[2,4]", "--instances", 2]
    with started(tmp_path, *run, "--trigger", "100ms", "--plain") as process:
        read_until(process, "  epoch ")
        assert ask("status", ckpt).startswith("query endless, running")
        assert "sums: 2 → 4 instances, since epoch " in ask("scale", ckpt, "sums", 4, "--wait", LONG)
        assert ask("state", ckpt, "sums", "--key", 3, "--limit", 2).startswith("sums after epoch ")
        refused = CliRunner().invoke(app, run)
        assert refused.exit_code == 1
        assert "is in use by process" in refused.output
        text = program.read_text()
        program.write_text(text.replace("def note(", "def note"))
        refused = CliRunner().invoke(app, ["reload", str(ckpt), "--wait", str(LONG)])
        assert refused.exit_code == 1
        assert refused.stderr.startswith(f"error: {program}:14: ")
        program.write_text(text.replace("per_key.to(st.callback", 'per_key.filter(pl.col("k") > 2).to(st.callback'))
        assert ask("reload", ckpt, "--wait", LONG).startswith("endless has another form since epoch ")
        assert "step filter is new" in ask("history", ckpt)
        assert ask("stop", ckpt, "--wait", LONG).startswith("endless stopped after epoch ")
        out, err = process.communicate(timeout=LONG)
    assert (process.returncode, err) == (0, "")
    assert "scaled sums: 2 → 4 instances" in out
    assert "endless was stopped; the next run continues from here" in out
    assert ask("status", ckpt).startswith("query endless, stopped")


def test_demo_and_one_interrupt(tmp_path: Path) -> None:
    with started(tmp_path, "demo", "--seconds", 300) as process:  # so long that it cannot end before it is interrupted
        shown = read_until(process, "  epoch ")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG)
    assert (process.returncode, err) == (0, "")
    assert shown[0].startswith("def contracts(")
    assert "def heavy_callers(" in "".join(shown)
    assert "heavy-callers was stopped" in out
    assert "\nNext\n" in out
    for name in ("output", "chart"):
        (place,) = [line.split()[-1] for line in out.splitlines() if line.startswith(f"  {name} ")]
        assert Path(place).is_relative_to(tmp_path)
    assert Path(place).read_bytes().startswith(b"\x89PNG")


def test_elastic_query_with_metrics_and_a_policy_of_ones_own(program: Path, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(dedent(POLICY))
    ckpt, port = tmp_path / "ckpt", free_port()
    run = ["run", f"{program}:endless", "--checkpoint", ckpt, "--master", "local[2,4]", "--instances", 1]
    elastic = ["--max", 2, "--policy", "steps:Upwards", "--metrics-port", port]
    with started(tmp_path, *run, *elastic, "--trigger", "100ms", "--plain") as process:
        read_until(process, "scaled sums: 1 → 2 instances; more is better")
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            figures = answer.read().decode()
        assert 'springtide_instances{query="endless",subquery="sums"}' in figures
        assert str(tmp_path) not in figures
        assert ask("pause", ckpt, "--wait", LONG).startswith("elasticity of endless is paused")
        ask("move", ckpt, "sums", "0-3", "--to", 0, "--wait", LONG)  # wherever the change of before has put them
        assert ask("move", ckpt, "sums", "0-3", "--to", 1, "--wait", LONG).startswith("sums: moved, since epoch ")
        assert ask("stop", ckpt, "--wait", LONG).startswith("endless stopped after epoch ")
        assert process.communicate(timeout=LONG)[1] == ""
    shown = ask("history", ckpt)
    assert "1 → 2 instances" in shown
    assert "rows 7 < 100 – more is better" in shown
    assert "asked for by hand" in shown


CHANGING = """
    from pathlib import Path

    import polars as pl
    import springtide as st

    HERE = Path(__file__).parent
    FACTOR = 1

    x = st.source("x", st.parquet(HERE / "in", schema={"n": pl.Int64, "ts": st.TIME}, follow=True), ts="ts")
    total = x.aggregate(window=st.last_n(2), total=st.sum("n"), name="total")
    copied = x.map(n=pl.col("n") * FACTOR)
    ends = [copied.to(st.parquet_sink(HERE / "out")), total.to(st.parquet_sink(HERE / "totals"), name="totals")]
    query = st.Query("edited", *ends)
"""


def test_a_query_is_edited_while_it_runs(tmp_path: Path) -> None:
    """SM-3: the file is edited, so that it no longer makes sense in between; rows are treated as the file says when they come, and none is lost."""
    program, parts = tmp_path / "edited.py", tmp_path / "in"
    parts.mkdir()
    program.write_text(dedent(CHANGING))

    def edit(*changes: tuple[str, str]) -> None:
        beside, text = tmp_path / "edited.partial", program.read_text()
        for old, new in changes:
            text = text.replace(old, new)
        beside.write_text(text)
        beside.replace(program)

    def add(number: int) -> None:
        rows = pl.DataFrame({"n": [number], "ts": [number]}, schema_overrides={"ts": pl.Int64})
        rows.with_columns(pl.col("ts").cast(st.TIME)).write_parquet(tmp_path / f"{number}.partial")
        (tmp_path / f"{number}.partial").rename(parts / f"{number}.parquet")

    def until_there_are(rows: int) -> None:
        end = time.monotonic() + LONG
        while sum(pl.read_parquet(f).height for f in (tmp_path / "out").glob("*.parquet")) < rows:
            assert time.monotonic() < end, f"row {rows} has not come"
            time.sleep(0.05)

    add(1)
    run = [
        "run",
        program,
        "--checkpoint",
        tmp_path / "ckpt",
        "--master",
        "local[2,4]",
        "--plain",
        "--reload",
        "--history",
    ]
    with started(tmp_path, *run, "--instances", 2) as process:
        read_until(process, "  epoch 0")
        until_there_are(1)
        edit(("FACTOR = 1", "FACTOR = 10"))
        read_until(process, "replaced edited: ")
        add(2)
        until_there_are(2)
        edit(("FACTOR = 10", "FACTOR = "))
        (told,) = (line for line in read_until(process, "continues as it was") if "continues as it was" in line)
        assert "edited.py has changed" in told
        assert "edited.py:8: invalid syntax" in told
        add(3)
        until_there_are(3)
        edit(("last_n(2)", "last_n(7)"))  # it makes no sense yet, and when it does it asks for something that cannot be
        edit(("FACTOR = ", "FACTOR = 100"))
        (told,) = (line for line in read_until(process, "another name") if "another name" in line)
        assert says(told, "step total (aggregate)", "cannot be taken over", "window: ")
        again = 'x.aggregate(window=st.last_n(2), total=st.sum("n"), name="again").to(st.parquet_sink(HERE / "again"))'
        edit(("last_n(7)", "last_n(2)"), ("*ends", f"*ends, {again}"))
        read_until(process, "replaced edited: ")
        add(4)
        until_there_are(4)
        assert ask("stop", tmp_path / "ckpt", "--wait", LONG).startswith("edited stopped after epoch ")
        out, err = process.communicate(timeout=LONG)
        assert err == ""
        assert str(tmp_path / "again") in out, "at its end it is shown in the form that it had then"
        assert process.returncode == 0
    assert pl.read_parquet(tmp_path / "out")["n"].sort().to_list() == [1, 20, 30, 400]
    totals = pl.read_parquet(tmp_path / "totals")["total"].sort().to_list()
    assert totals == [3, 5], "what stays keeps its state, and the last row waits"
    assert pl.read_parquet(tmp_path / "again")["total"].to_list() == [5], "it has the row from before it was there"
    assert ask("history", tmp_path / "ckpt").startswith("query edited, 2 decisions")


SESSIONS = """
    import polars as pl
    import springtide as st
    from pathlib import Path

    def look(rows, epoch):
        from pyspark.sql import SparkSession
        context = SparkSession.active().sparkContext
        jars = [Path(jar).name for jar in str(context._jsc.sc().listJars().mkString(" ")).split()]
        found = [context.appName, context.getConf().get("spark.executorEnv.ANSWER"), *jars]
        (Path(__file__).parent / "found").write_text(" ".join(map(str, found)))

    x = st.source("x", st.memory([{"n": 1}]))
    query = st.Query("look", x.to(st.callback(look)))

    def mine():
        return st.spark_session("local[1,4]", name="mine", **{"spark.executorEnv.ANSWER": "7"})
"""


def run_to_the_end(folder: Path, *arguments: object) -> str:
    done = subprocess.run(
        command("run", *arguments), env=environment(folder), capture_output=True, text=True, timeout=LONG
    )
    assert (done.returncode, done.stderr) == (0, "")
    return (folder / "found").read_text()


def test_settings_and_packages(tmp_path: Path) -> None:
    """The package is in a repository of the test's own: nothing is fetched from outside."""
    (tmp_path / "program.py").write_text(dedent(SESSIONS))
    package = tmp_path / "repository" / "org" / "example" / "tiny" / "1.0"
    package.mkdir(parents=True)
    (package / "tiny-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>tiny</artifactId><version>1.0</version></project>"
    )
    with zipfile.ZipFile(package / "tiny-1.0.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    ivy = tmp_path / "ivysettings.xml"
    ivy.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers>'
        f'<ibiblio name="here" m2compatible="true" root="{(tmp_path / "repository").as_uri()}/"/>'
        "</resolvers></ivysettings>"
    )
    settings = {
        "spark.executorEnv.ANSWER": "4=2",
        "spark.jars.ivySettings": ivy,
        "spark.jars.ivy": tmp_path / "ivy",
    }
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    packages = ["--packages", "org.example:tiny:1.0"]
    found = run_to_the_end(tmp_path, tmp_path / "program.py", "--master", "local[1,4]", *conf, *packages)
    assert found == "springtide look 4=2 org.example_tiny-1.0.jar"


def test_a_session_function(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(dedent(SESSIONS))
    assert run_to_the_end(tmp_path, tmp_path / "program.py", "--session", "mine") == "mine 7"
