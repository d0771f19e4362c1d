"""The files around the code keep their promises: the lock, the Makefile, no trace of anybody's machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text("utf-8")


def locked() -> list[tuple[Requirement, str]]:
    """(requirement, the lines that belong to it) for each entry of the lock."""
    entries = re.findall(r"^([a-z].*?) \\\n((?:[ ]+.*\n?)+)", LOCK, flags=re.MULTILINE)
    return [(Requirement(requirement), rest) for requirement, rest in entries]


def test_lock_names_no_place() -> None:
    assert re.findall(r".*(?:://|--(?:index|extra-index|find-links|trusted-host)|\bfile:| @ ).*", LOCK) == []


def test_lock_has_hashes_for_every_requirement() -> None:
    starts = re.findall(r"^[^\s#].*", LOCK, flags=re.MULTILINE)
    assert len(locked()) == len(starts) > 0
    assert [str(requirement) for requirement, rest in locked() if "--hash=sha256:" not in rest] == []


def test_lock_holds_every_dependency_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    versions: dict[str, list[str]] = {}
    for requirement, _ in locked():
        versions.setdefault(canonicalize_name(requirement.name), []).append(
            str(requirement.specifier).removeprefix("==")
        )
    wanted = map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["dev"]])
    missing = [
        str(requirement)
        for requirement in wanted
        if not all(map(requirement.specifier.contains, versions.get(canonicalize_name(requirement.name), ["none"])))
    ]
    assert missing == [], "run `make lock`"


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("command", [["make"], ["make", "help"]], ids=" ".join)
def test_help_lists_each_target(command: list[str]) -> None:
    # This test may itself run under make, whose flags are not meant for this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    shown = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    for target in ["help", "demo", "test", "check", "format", "bench", "lock", "clean"]:
        assert re.search(rf"^make {target} +\w.+", shown, flags=re.MULTILINE), target


def test_no_file_names_a_developers_machine() -> None:
    listing = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        files = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    machine_path = re.compile(r"(?<![\w.~-])/(?:home/\w+|Users/\w+|root|work)/\S*")
    found = [
        f"{name}: {path}"
        for name in files
        if name and (ROOT / name).is_file()
        for path in machine_path.findall((ROOT / name).read_text("utf-8", errors="replace"))
    ]
    assert found == []
