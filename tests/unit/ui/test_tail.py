"""The history is read as it comes: the newest lines first, then what is added, and what came before a piece at a time."""

from __future__ import annotations

from pathlib import Path

from springtide.ui.files import Files
from springtide.ui.tail import Line, Tail


def part(root: Path, number: int) -> Path:
    (root / "history").mkdir(exist_ok=True)
    return root / "history" / f"snapshots-000001-{number:06d}.jsonl"


def texts(lines: list[Line]) -> list[str]:
    return [line.decode() for _, line in lines]


def test_nothing_is_there_yet(tmp_path: Path) -> None:
    tail = Tail(Files.at(tmp_path), "snapshots")
    assert tail.new() == []
    part(tmp_path, 0).write_text("a\n")
    assert texts(tail.new()) == ["a"]


def test_the_last_lines_come_first_and_the_earlier_ones_a_piece_at_a_time(tmp_path: Path) -> None:
    lines = [f"line {i:03d}" for i in range(100)]
    part(tmp_path, 0).write_text("".join(f"{line}\n" for line in lines[:60]))
    part(tmp_path, 1).write_text("".join(f"{line}\n" for line in lines[60:]))
    tail = Tail(Files.at(tmp_path), "snapshots", first=50, piece=120)
    found = texts(tail.new())
    assert found == lines[-len(found) :]
    assert 0 < len(found) < 10
    while not tail.is_whole:
        earlier = texts(tail.earlier())
        assert 0 < len(earlier) <= 13
        found = earlier + found
    assert found == lines
    assert tail.earlier() == []


def test_lines_that_are_added_are_followed_into_new_files(tmp_path: Path) -> None:
    tail = Tail(Files.at(tmp_path), "snapshots")
    first = part(tmp_path, 0)
    first.write_text("a\nb")  # the second one is not whole yet
    assert texts(tail.new()) == ["a"]
    assert tail.new() == []
    with first.open("a") as file:
        file.write("c\n")
    part(tmp_path, 1).write_text("d\n")
    assert texts(tail.new()) == ["bc", "d"]


def test_a_line_can_be_read_once_more(tmp_path: Path) -> None:
    part(tmp_path, 0).write_text("one\ntwo\n")
    tail = Tail(Files.at(tmp_path), "snapshots")
    place, line = tail.new()[1]
    assert tail.line(place) == b"two\n"
    assert line == b"two"
    part(tmp_path, 0).unlink()
    assert tail.line(place) == b""


def test_history_in_a_store(s3: str) -> None:
    files = Files.at(s3)
    files.store.write("history/snapshots-000001-000000.jsonl", b"a\nb\n")
    files.store.write("history/decisions-000001-000000.jsonl", b"other\n")
    tail = Tail(files, "snapshots")
    assert texts(tail.new()) == ["a", "b"]
    files.store.write("history/snapshots-000001-000000.jsonl", b"a\nb\nc\n")
    assert texts(tail.new()) == ["c"]
