"""The contract: for the same input the engine gives the same rows as the sequential reference.

Random queries × random data × random cuts into epochs × random instances, bucket maps, durability, restarts, failures and
losses of state, all made from one seed (SC-4, SE-3). The in-process runner runs the same tasks, blobs, segments and manifests as Spark does.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest

from springtide.query.errors import SpringtideError
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options
from springtide.runtime.reference import Result
from springtide.state.accounts import imbalances
from springtide.state.bucket_map import BucketMap
from springtide.testing import compare
from tests.properties.losses import Faults
from tests.properties.queries import Case, case
from tests.properties.swaps import Swaps

CASES = 2_000
MANY = 20_000
CHUNK = 50

MOST_INSTANCES = 5
INSTANCES = (1, 1, 1, 2, 2, 2, 3, MOST_INSTANCES)
"""Mostly few: a case takes as long as it has tasks."""
MOST_EPOCHS = 200


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Cut the seeds into chunks; `--seed` leaves one."""
    if "seeds" in metafunc.fixturenames:
        one = metafunc.config.getoption("--seed", None)
        first, last = metafunc.function.seeds
        ranges = [range(low, min(low + CHUNK, last)) for low in range(first, last, CHUNK)]
        if one is not None:
            ranges = [range(one, one + 1)]
        metafunc.parametrize("seeds", ranges, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of manifests are written through to the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def test_every_run_gives_the_rows_of_the_reference(seeds: range, folder: Path) -> None:
    """SC-4, SC-6, SC-7, ST-1, ST-5, SE-1: whatever the instances, cuts, maps and restarts."""
    for seed in seeds:
        check(seed, folder / str(seed))


test_every_run_gives_the_rows_of_the_reference.seeds = (0, CASES)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_many_more_runs_give_the_rows_of_the_reference(seeds: range, folder: Path) -> None:
    """The same for ten times as many seeds."""
    for seed in seeds:
        check(seed, folder / str(seed))


test_many_more_runs_give_the_rows_of_the_reference.seeds = (CASES, CASES + MANY)  # type: ignore[attr-defined]


def check(seed: int, checkpoint: Path, address: str | None = None) -> None:
    """Run one case both ways and compare; a failure says how to see it again. With an address the checkpoint is there, and the folder is for nodes."""
    one: Case | None = None
    try:
        one = case(seed, checkpoint.with_suffix(".input"))
        expected = one.query.run_reference()
        told(one, run_at_random(one, checkpoint, address), expected)
    except Exception as error:
        query = "the query was not even made" if one is None else f"{one.query.explain()}\n\n{one.inputs}"
        command = f"pytest tests/properties/test_engine.py --seed {seed}"
        raise AssertionError(
            f"seed {seed}: {type(error).__name__}: {error}\n\n{query}\n\nto run it again: {command}"
        ) from error
    finally:
        suffixes = (".input", ".memory", ".backup", ".node0", ".node1")
        for used in (checkpoint, *(checkpoint.with_suffix(s) for s in suffixes)):
            shutil.rmtree(used, ignore_errors=True)


def told(one: Case, engine: Engine, expected: Result) -> None:
    """Compare every sink and every count."""
    for name, sink in one.sinks.items():
        given, wanted = sink.rows(), expected.rows(name)
        if name.startswith(
            "rejected"
        ):  # the row as JSON is for people: written as it came, or as the column that it became
            given, wanted = given.drop("row"), wanted.drop("row")
        try:
            compare(given, wanted, float_tolerance=0)
        except AssertionError as error:
            raise AssertionError(f"sink {name}: {error}") from None
    for name, state in engine.manifest.sources.items():
        if name not in expected.late:  # it has come beside the query
            continue
        assert state.late == expected.late[name].height, f"{name}: {state.late} late rows"
        assert state.rejected == expected.rejected[name].height, f"{name}: {state.rejected} rejected rows"
    assert not list(imbalances(engine.manifest.accounts)), "not all rows are accounted for"
    for name, kept in engine.manifest.state.items():
        assert not kept.segments, f"{name} has state left at the end: {kept.segments}"


def run_at_random(one: Case, checkpoint: Path, address: str | None = None) -> Engine:
    """Run a case to its end, with other maps and degrees between epochs, and in several starts."""
    random, faults = Random(one.seed + 0.5), Faults(one.seed, checkpoint, remote=address is not None)
    swaps = Swaps(one)
    restless, stopping = random.choice([0, 0.3, 0.8]), random.choice([0, 0, 0.2])

    def between(engine: Engine) -> bool:
        assert engine.manifest.epoch < MOST_EPOCHS, "the run comes to no end"
        if not faults.between(engine):
            return False
        for subquery in one.plan.subqueries:
            if random.random() < restless:
                reconfigure(engine, subquery.name, random)
        swaps.between(engine)
        if engine.manifest.ended:
            return False
        return random.random() >= stopping

    while True:
        plan = swaps.plan
        options = Options(degrees(one, random), one.rows_per_epoch, durability=faults.durability(), timer=faults.timer)
        try:
            with patch.object(inprocess, "execute", faults.execute):
                engine = inprocess.run(plan, address or checkpoint, options, between=between)
        except SpringtideError as error:
            if "another form of this query" in str(error) and plan is not swaps.other():
                continue
            if "a test wanted" not in str(error):
                raise
            continue
        if engine.manifest.ended:
            return engine
        faults.afterwards()


def degrees(one: Case, random: Random) -> int | dict[str, int]:
    """Choose the instances of a start: for all subqueries, or for some of them."""
    if random.random() < 0.4:
        return random.choice(INSTANCES)
    names = [s.name for s in one.plan.subqueries]
    return {name: random.choice(INSTANCES) for name in random.sample(names, random.randint(0, len(names)))}


def reconfigure(engine: Engine, name: str, random: Random) -> None:
    """SC-9: another number of instances, buckets moved, the load evened out, by any protocol; or any map at all."""
    before, change = engine.maps[name], engine.reconfiguring
    protocol = random.choice(["virtual", "state", "window", "window", "rule", None])
    what = random.choice(["scale", "scale", "move", "rebalance", "map", "map"] if before.owners else ["scale"])
    if what == "scale":
        engine.scale(name, random.choice(INSTANCES), protocol)  # type: ignore[arg-type]
        return
    if what == "move":
        buckets = random.sample(range(len(before.owners)), random.randint(1, len(before.owners)))
        change.move(name, buckets, random.randrange(before.instances), protocol)  # type: ignore[arg-type]
        return
    if what == "rebalance":
        change.rebalance(name, protocol)  # type: ignore[arg-type]
        return
    instances = random.choice(INSTANCES)
    owners = tuple(random.randrange(instances) for _ in before.owners)
    engine.maps[name] = BucketMap(before.version + 1, instances, owners)
