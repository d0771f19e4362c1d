"""What `springtide run` is told, and what it refuses before Spark starts."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

import springtide as st
from springtide.cli.errors import CommandError
from springtide.cli.interrupts import Interrupts
from springtide.cli.launch import parse_instances
from springtide.cli.sessions import parse_session
from springtide.cli.spark import _reason, _stderr_to
from tests.wording import says

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("wanted", "instances"),
    [
        ([], {}),
        (["3"], {"x": 3, "counts": 3}),
        (["counts=4"], {"counts": 4}),
        (["kept=4"], {"counts": 4}),  # a step behind the aggregate, in its subquery
        (["counts=4", "2"], {"x": 2, "counts": 4}),
    ],
)
def test_instances(query: st.Query, wanted: list[str], instances: dict[str, int]) -> None:
    assert parse_instances(query.plan(), wanted) == instances


@pytest.mark.parametrize("wanted", ["two", "counts=", "counts=0", "0", "-1", "counts=1.5"])
def test_instances_that_are_no_numbers(query: st.Query, wanted: str) -> None:
    with pytest.raises(CommandError, match="give a number, or step=number"):
        parse_instances(query.plan(), [wanted])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--instances", "y=2"], "step y (unknown): the query 'q' has no such step; "),
        (["--trigger", "soon"], "--trigger: 'soon' is not a length of time: "),
        (["--trigger", "-1s"], "--trigger -1s is in the past; "),
        (["--checkpoint", "{folder}"], "checkpoint {folder} is not empty and not a Springtide checkpoint; "),
    ],
)
def test_mistakes_are_told_before_spark_starts(
    run: Run, program: Callable[..., Path], options: list[str], message: str
) -> None:
    file = program("query = st.Query('q', x.to(out))")
    result = run("run", file, *(o.replace("{folder}", str(file.parent)) for o in options))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: {message.replace('{folder}', str(file.parent))}")
    assert result.stderr.count("\n") == 1


def test_port_that_is_taken(run: Run, program: Callable[..., Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("run", program("query = st.Query('q', x.to(out))"), "--metrics-port", port)
    assert result.stderr.startswith(f"error: metrics cannot be served on 127.0.0.1:{port}: ")


def test_checkpoint_of_another_query(run: Run, program: Callable[..., Path], checkpoint: Callable[..., Path]) -> None:
    result = run("run", program("query = st.Query('q', x.to(out))"), "--checkpoint", checkpoint())
    assert result.exit_code == 1
    assert "belongs to the query 'numbers', not 'q'" in result.stderr


def test_first_interrupt_is_noted() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        assert not interrupts.stop_wanted
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.stop_wanted
    assert signal.getsignal(signal.SIGINT) is before


def test_what_comes_on_stderr_goes_to_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with _stderr_to(tmp_path / "log"):
        os.write(2, b"noise\n")
    print("word", file=sys.stderr)
    assert (tmp_path / "log").read_text() == "noise\n"
    assert capfd.readouterr().err == "word\n"


def test_reason_why_spark_did_not_start() -> None:
    trace = 'WARNING: x\nException in thread "main" org.apache.spark.SparkException: Master must be local.\n\tat y'
    assert _reason(RuntimeError("[JAVA_GATEWAY_EXITED] gone"), trace) == "Master must be local"
    assert (
        _reason(RuntimeError("calling o1.\n: org.apache.spark.SparkException: No such host\n\tat"), "")
        == "No such host"
    )
    assert _reason(RuntimeError("short"), "") == "short"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--conf", "spark.executor.memory"], "--conf 'spark.executor.memory' is not understood; give a setting and"),
        (["--conf", "=hush"], "--conf is not understood; "),
        (["--conf", "spark.master=yarn"], "--conf spark.master=…"),
        (["--packages", "a:b:1", "--conf", "spark.jars.packages=c:d:1"], "--packages and --conf spark.jars.packages=…"),
        (["--session", "mine", "--conf", "a=hush"], "--session makes the session"),
        (["--session", "mime"], "--session: there is no function 'mime' in the file of the query; "),
        (["--session", "nowhere:mine"], "--session: the module 'nowhere' cannot be imported, "),
        (["--session", "number"], "--session number is not a function; "),
    ],
)
def test_sessions_that_cannot_be_had(run: Run, program: Callable[..., Path], options: list[str], message: str) -> None:
    file = program("query = st.Query('q', x.to(out))\nnumber = 7\ndef mine(): return 7")
    result = run("run", file, *options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: {message}")
    assert "hush" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_a_session_function_returns_is_looked_at(run: Run, program: Callable[..., Path], tmp_path: Path) -> None:
    file = program("query = st.Query('q', x.to(out))\ndef mine(): return 7\ndef fails(): raise OSError('no cluster')")
    result = run("run", file, "--session", "mine", "--checkpoint", tmp_path / "one")
    assert says(result.stderr, "error: step (--session): 7 is not a Spark session", "; ", "st.spark_session(")
    result = run("run", file, "--session", "fails", "--checkpoint", tmp_path / "two")
    assert result.stderr.startswith("error: Spark did not start: no cluster; its log is ")


def test_a_session_function_is_found_in_the_file_or_in_a_module_beside_it(tmp_path: Path) -> None:
    (tmp_path / "company_sessions.py").write_text("def session(): return 7")
    function = parse_session(session="company_sessions:session", folder=tmp_path).function
    assert function is not None
    assert function() == 7
    assert parse_session(session="parse_session", module=sys.modules[__name__]).function is parse_session
