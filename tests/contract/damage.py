"""Random damage to the small files of a checkpoint: bytes changed, JSON forged with a checksum that fits, what is no file in the place of one."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path
from random import Random
from typing import Any

DEEP = 3_000


def poison(random: Random, outside: Path) -> Any:
    """Make up a value that nobody writes there."""
    return random.choice(
        [
            *(None, True, False, 0, -1, 1, 7, 2**31, 2**63, 10**30, -(2**70), 0.5, float("inf"), float("nan")),
            *("", "..", "../../outside/own.arrow", "state/../../outside/own.arrow", str(outside / "own.arrow")),
            *("state/x/\0", "x" * 3000, "state/a/b/c", "é\ud800", "outbox/000000001/..", str(outside), "/"),
            *([], {}, [[]], [None], {"": None}, [1e308], {"file": "../x"}),
        ]
    )


def forged(random: Random, data: Any, outside: Path) -> Any:
    """Change one member of some JSON, wherever it is."""
    if isinstance(data, dict) and data and random.random() < 0.93:
        name = random.choice(sorted(data))
        changed = dict(data)
        chance = random.random()
        if chance < 0.04:
            del changed[name]
        elif chance < 0.06:
            changed[str(poison(random, outside))[:50]] = changed.pop(name)
        else:
            changed[name] = forged(random, data[name], outside)
        return changed
    if isinstance(data, list) and data and random.random() < 0.93:
        place = random.randrange(len(data))
        chance = random.random()
        if chance < 0.05:
            return data[:place] + data[place + 1 :]
        if chance < 0.08:
            return [*data, data[place]]
        return [forged(random, item, outside) if i == place else item for i, item in enumerate(data)]
    return poison(random, outside)


def as_manifest(body: Any) -> bytes:
    """Write a manifest whose checksum fits."""
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    outer = {"format": 1, "crc": zlib.crc32(text.encode()), "body": body}
    return json.dumps(outer, separators=(",", ":"), sort_keys=True).encode()


def spoilt(random: Random, data: bytes) -> bytes:
    """Change some bytes."""
    at = random.randrange(len(data) + 1)
    return random.choice(
        [
            lambda: data[:at],
            lambda: data[at:],
            lambda: data[:at] + random.randbytes(random.randint(1, 9)) + data[at:],
            lambda: data[:at] + bytes([random.randrange(256)]) + data[at + 1 :],
            lambda: data + data,
            lambda: random.randbytes(random.randint(0, 60)),
            lambda: b"[" * DEEP,
            lambda: b'{"a":' * DEEP,
            lambda: b"9" * 6_000,
            lambda: data.replace(b"1", b"1e999", 1),
            lambda: data.replace(b":", b":NaN,", 1),
        ]
    )()


def replaced(random: Random, path: Path, outside: Path) -> None:
    """Put something else into the place of a file."""
    path.unlink()
    match random.choice(["nothing", "folder", "pipe", "link", "link to nowhere", "not for us", "another"]):
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            os.symlink(outside / "own.json", path)
        case "link to nowhere":
            os.symlink(path.with_name("nowhere"), path)
        case "not for us":
            path.write_bytes(b"{}")
            path.chmod(0)
        case "another":
            others = sorted(f for f in path.parent.iterdir() if f.is_file())
            if others:
                shutil.copyfile(random.choice(others), path)


def damage(random: Random, path: Path, outside: Path) -> None:
    """Do something to a file."""
    data, chance = path.read_bytes(), random.random()
    if chance < 0.15:
        replaced(random, path, outside)
    elif chance < 0.4:
        path.write_bytes(spoilt(random, data))
    elif path.parent.name == "manifests":
        path.write_bytes(as_manifest(forged(random, json.loads(data)["body"], outside)))
    elif path.suffix == ".jsonl":
        lines = data.splitlines()
        place = random.randrange(len(lines))
        lines[place] = json.dumps(forged(random, json.loads(lines[place]), outside)).encode()
        path.write_bytes(b"\n".join(lines) + b"\n")
    else:
        try:
            path.write_bytes(json.dumps(forged(random, json.loads(data), outside)).encode())
        except ValueError:  # it is no JSON
            path.write_bytes(spoilt(random, data))
