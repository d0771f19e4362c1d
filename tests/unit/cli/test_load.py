"""What `FILE[:NAME]` may be, and what is said when it is something else: one line, exit code 1."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from springtide.cli.errors import CommandError
from springtide.cli.load import load_module, load_query

Program = Callable[..., Path]

ONE = "query = st.Query('numbers', x.to(out))"
TWO = "first = st.Query('one', x.to(out))\nsecond = st.Query('two', x.to(out))"


def test_only_query_of_a_file(program: Program) -> None:
    assert load_query(str(program(ONE))).name == "numbers"


def test_query_with_two_variables_is_one(program: Program) -> None:
    assert load_query(str(program(f"{ONE}\nsame = query"))).name == "numbers"


@pytest.mark.parametrize("name", ["second", "two"])
def test_query_by_variable_or_by_name(program: Program, name: str) -> None:
    assert load_query(f"{program(TWO)}:{name}").name == "two"


def test_file_with_a_colon_in_its_name(program: Program) -> None:
    assert load_query(str(program(ONE, "a:b.py"))).name == "numbers"


def test_file_may_import_its_neighbours(program: Program) -> None:
    program("limit = 3", "neighbour_of_the_query.py")
    file = program("from neighbour_of_the_query import limit\nquery = st.Query(f'q{limit}', x.to(out))")
    assert load_query(str(file)).name == "q3"


def test_classes_of_a_file_can_be_pickled(program: Program) -> None:
    thing = load_module(program("class Thing: pass", "things.py")).Thing()
    assert type(pickle.loads(pickle.dumps(thing))) is type(thing)


@pytest.mark.parametrize(
    ("lines", "name", "message"),
    [
        ("", "", "{} defines no query; assign one: query = st.Query('name', stream.to(sink))"),
        (TWO, "", "{} defines several queries; say which: {}:first, {}:second"),
        (TWO, ":secnd", "{} has no query 'secnd'; did you mean 'second'?"),
        ("x.filter(pl.col('m') > 1)", "", "{}:5: step filter after x: there is no column 'm'; there are: k, n, ts"),
        ("def f():\n  return 1 / 0\nf()", "", "{}:6: ZeroDivisionError: division by zero"),
        ("assert False", "", "{}:5: AssertionError: "),
        ("import nothing_like_it", "", "{}:5: ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("raise SystemExit('bye')", "", "{}:5: SystemExit: bye"),
        ("query = = 1", "", "{}:5: invalid syntax"),
    ],
)
def test_wrong_files_are_told_in_one_line(program: Program, lines: str, name: str, message: str) -> None:
    file = program(lines)
    with pytest.raises(CommandError) as caught:
        load_query(f"{file}{name}")
    assert str(caught.value) == message.replace("{}", str(file))


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"^there is no file \S+none\.py$"):
        load_query(str(tmp_path / "none.py"))
    with pytest.raises(CommandError, match="is not a file"):
        load_query(str(tmp_path))


def test_file_that_is_not_python(tmp_path: Path) -> None:
    (tmp_path / "query.txt").write_text("x")
    with pytest.raises(CommandError, match=r"its name should end in \.py"):
        load_query(str(tmp_path / "query.txt"))
