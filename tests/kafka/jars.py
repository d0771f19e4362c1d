"""The jars of a Kafka broker, from Maven Central, each with its checksum: what `scripts/setup.sh kafka` gets.

`jars.lock` has a line for each: its path in the repository, and its SHA-256. They are kept beside the virtual environment's packages.
"""

from __future__ import annotations

import hashlib
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CENTRAL = "https://repo1.maven.org/maven2"
VERSION = "4.1.2"
FOLDER = Path(sys.prefix) / f"kafka-{VERSION}"
LOCK = Path(__file__).with_name("jars.lock")


def wanted(lock: Path = LOCK) -> list[tuple[str, str]]:
    """Each jar's path in the repository, and its checksum."""
    return [(path, checksum) for path, checksum in (line.split() for line in lock.read_text("utf-8").splitlines())]


def missing(lock: Path = LOCK, folder: Path = FOLDER) -> list[tuple[str, str]]:
    return [(path, checksum) for path, checksum in wanted(lock) if not (folder / Path(path).name).exists()]


def fetch(path: str, checksum: str, folder: Path = FOLDER) -> None:
    """Get one jar, whole or not at all."""
    with urllib.request.urlopen(f"{CENTRAL}/{path}", timeout=60) as answer:
        content = answer.read()
    if hashlib.sha256(content).hexdigest() != checksum:
        raise OSError(f"{path} is not what jars.lock says")
    part = folder / f"{Path(path).name}.part"
    part.write_bytes(content)
    part.rename(folder / Path(path).name)


def fetch_all(jars: list[tuple[str, str]], folder: Path = FOLDER) -> None:
    """Get several jars, eight at a time."""
    folder.mkdir(exist_ok=True)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda jar: fetch(*jar, folder), jars))


def main() -> None:
    todo = missing()
    if not todo:
        return
    print("set-up: getting a Kafka broker for the tests (45 MB)", file=sys.stderr)
    try:
        fetch_all(todo)
    except OSError as error:
        print(f"set-up: no Kafka broker, so tests that need one are skipped: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
