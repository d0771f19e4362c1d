"""RowsByKey of a file: counted once, found by number."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from springtide.sources import line_files as module
from springtide.sources.line_files import LineFile, estimated_lines, first_line, line_file, split_lines

CHUNK = 7


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", CHUNK)
    monkeypatch.setattr(module, "_known", {})


def counted(path: Path) -> LineFile:
    file = LineFile(str(path))
    file.refresh()
    return file


def starts(data: bytes) -> list[int]:
    """Where each line begins, and where the last one ends."""
    first = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    found = [first] + [i + 1 for i in range(first, len(data)) if data[i] == 10]
    return found if found[-1] == len(data) else [*found, len(data)]


DATA = some.lists(some.sampled_from([b"\n", b"a", b"bb", b"\r\n"]), max_size=40).map(b"".join)


@given(DATA, some.booleans())
def test_every_line_is_found(data: bytes, mark: bool) -> None:
    data = b"\xef\xbb\xbf" + data if mark else data
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        path.write_bytes(data)
        file = counted(path)
        expected = starts(data)
        assert file.lines == len(expected) - 1
        assert [file.offset(i) for i in range(file.lines + 1)] == expected
        assert file.ends == data.count(b"\n")
        assert split_lines(data[file.first :])[0].len() == file.lines


@given(some.lists(DATA, min_size=1, max_size=5))
def test_a_file_that_grows_is_gone_on_with(parts: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        path.touch()
        file = counted(path)
        written = b""
        for part in parts:
            written += part
            path.write_bytes(written)
            file.refresh()
            fresh = counted(path)
            assert (file.lines, file.marks, file.terminated) == (fresh.lines, fresh.marks, fresh.terminated)


def test_a_file_that_was_written_anew_is_counted_anew(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1\n2\n3\n")
    file = counted(path)
    path.write_bytes(b"1234\n")
    file.refresh()
    assert (file.lines, file.offset(1)) == (1, 5)
    path.write_bytes(b"1\n34\n")
    os.utime(path, ns=(1, 1))
    file.refresh()
    assert file.lines == 2


def test_what_was_counted_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1\n2\n")
    assert line_file(str(path)).lines == 2
    monkeypatch.setattr(LineFile, "_count", None)
    assert line_file(str(path)).lines == 2


def test_only_so_many_files_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 3)
    for name in "abcde":
        (tmp_path / name).write_bytes(b"1\n")
        line_file(str(tmp_path / name))
    assert [Path(p).name for p in module._known] == ["c", "d", "e"]


def test_estimates(tmp_path: Path) -> None:
    for name, data in {"a": b"12\n34\n", "b": b"12345\n", "c": b""}.items():
        (tmp_path / name).write_bytes(data)
    assert (
        estimated_lines(str(tmp_path / "b"), (tmp_path / "b").stat().st_size) == 6
    )  # nothing is known: at most one line per byte
    line_file(str(tmp_path / "a"))
    assert estimated_lines(str(tmp_path / "a"), (tmp_path / "a").stat().st_size) == 2
    assert estimated_lines(str(tmp_path / "b"), (tmp_path / "b").stat().st_size) == 2
    assert estimated_lines(str(tmp_path / "c"), (tmp_path / "c").stat().st_size) == 0


@pytest.mark.parametrize(
    ("data", "line"), [(b"a,b\n1", b"a,b"), (b"\xef\xbb\xbfa\r\n", b"a"), (b"", b""), (b"a", b"a"), (b"\n1", b"")]
)
def test_the_first_line(tmp_path: Path, data: bytes, line: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    assert first_line(str(tmp_path / "a")) == line


def test_a_replacement_character_is_no_fault() -> None:
    lines, wrong = split_lines(b"\xff\n\xef\xbf\xbd\nok\xc3\r\n")
    assert lines.to_list() == ["\ufffd", "\ufffd", "ok\ufffd"]
    assert list(wrong) == [0, 2]
