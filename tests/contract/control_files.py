"""The kind `control_files`: whatever lies in the control folder of a run, the run goes on and gives its rows; what is no command is refused.

Commands, forged commands, bytes, folders, pipes and links come between epochs, and some are there when the run starts. What is not a file of ours
stays; a start behind it works too. Every command is answered by itself.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import polars as pl

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.state.answers import read_answer
from springtide.state.control import Command, send
from tests.contract.damage import forged, spoilt

SCHEMA = {"ts": st.TIME, "k": pl.String, "x": pl.Int64}
ROWS = pl.DataFrame(
    {"ts": [i * 1_000_000 for i in range(12)], "k": [f"k{i % 4}" for i in range(12)], "x": range(12)}
).with_columns(pl.col("ts").cast(st.TIME))
EXPECTED = (
    ROWS.group_by("k", pl.col("ts").dt.truncate("4s")).agg(total=pl.col("x").sum()).sort("ts", "k")["total"].to_list()
)


def run_case(seed: int, folder: Path) -> str | None:
    """Leave all kinds of things for a run and a second one behind it."""
    random = Random(seed)
    root, own = folder / "ckpt", folder / "own.json"
    own.write_text('{"command": "stop"}')
    sink = st.memory_sink()
    source = st.source("rows", st.memory(ROWS, schema=SCHEMA), ts="ts")
    sums = source.aggregate(by="k", window=st.tumbling("4s"), total=st.sum("x"), name="sums")
    plan = st.Query("controlled", sums.to(sink)).plan(buckets=8)
    stays, sent = set[str](), list[Path]()

    def between(engine: Engine) -> bool:
        for _ in range(random.choice([0, 0, 1, 2])):
            stays.update(_leave(random, root, own, sent))
        return not engine.take_commands()

    for _ in range(20):  # a command may be to stop
        engine = inprocess.run(plan, root, Options(random.choice([1, 2]), random.choice([5, 6, 12])), between=between)
        if engine.manifest.ended:
            break
    else:
        return "it never came to its end"
    found = sink.rows().sort("window_start", "k")["total"].to_list()
    if found != EXPECTED:
        return f"{found}, not {EXPECTED}"
    if gone := stays - set(os.listdir(root / "control") if stays else ()):
        return f"{gone} are gone from the control folder"
    if silent := [file.name for file in sent if (answer := read_answer(file)) is None or not answer.final]:
        return f"{silent} were not answered"
    return None if own.read_text() == '{"command": "stop"}' else "a file outside was changed"


def _leave(random: Random, root: Path, own: Path, sent: list[Path]) -> set[str]:
    """Leave something, and return its name if it is not a file that a run may take for its own; add a command to those that were sent."""
    control = root / "control"
    control.mkdir(exist_ok=True)
    command = random.choice(
        [
            Command("scale", {"step": "sums", "instances": random.randint(1, 5)}),
            Command("scale", {"step": "rows", "instances": random.randint(1, 5)}),
            Command("move", {"step": "sums", "buckets": [random.randrange(8)], "to": random.randrange(3)}),
            Command("rebalance", {"step": "sums", "protocol": random.choice([None, "state", "virtual", "window"])}),
            *(Command("pause"), Command("resume"), Command("stop")),
        ]
    )
    data = json.dumps({"command": command.name, "options": command.options}).encode()
    path = control / f"{random.randrange(10**6)}.json"
    match random.choice(["command", "forged", "forged", "forged", "spoilt", "folder", "pipe", "link", "hidden"]):
        case "command":
            sent.append(send(root, command))
        case "forged":
            path.write_bytes(json.dumps(forged(random, json.loads(data), own.parent)).encode())
        case "spoilt":
            path.write_bytes(spoilt(random, data))
        case "folder":
            path.mkdir()
            return {path.name}
        case "pipe":
            os.mkfifo(path)
            return {path.name}
        case "link":
            os.symlink(own, path)
            return {path.name}
        case "hidden":
            (control / ".notes.json").write_bytes(data)
            return {".notes.json"}
    return set()
