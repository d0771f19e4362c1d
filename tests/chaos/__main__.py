"""Torment queries and compare what they give with the reference: python -m tests.chaos [--seconds 60] [--seed 7] [--queries join] [--cluster] [--drivers replicas].

`make chaos SECONDS=600 SEED=7` does the same. It ends with 1 when a row is wrong or a run ended that should not have.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from random import Random, SystemRandom

from benchmarks.elastic.standalone import standalone
from tests.chaos.queries import NAMES
from tests.chaos.runner import Outcome, torment
from tests.chaos.several import HOW, torment_several


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long, for all queries together")
    parser.add_argument("--seed", type=int, default=None, help="what happens, and when; without it any")
    parser.add_argument("--queries", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--cluster", action="store_true", help="on a standalone cluster, where executors die too")
    parser.add_argument(
        "--drivers", choices=HOW, help="several at once: one that stands by for another, or two replicas"
    )
    given = parser.parse_args(arguments)
    seed = SystemRandom().randrange(10**6) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    total = Outcome()
    for name in given.queries:
        random = Random(f"{seed}-{name}")
        print(f"query {name}", flush=True)
        with tempfile.TemporaryDirectory(prefix="springtide-chaos-") as folder:
            seconds = given.seconds / len(given.queries)
            if given.drivers:
                total += torment_several(given.drivers, name, Path(folder), random, seconds)
            elif given.cluster:
                with standalone(Path(folder) / "cluster", workers=2, cores=2) as master:
                    total += torment(name, Path(folder), random, seconds, master)
            else:
                total += torment(name, Path(folder), random, seconds)
    for line in total.lines():
        print(line)
    more = ["--queries", *given.queries] * (tuple(given.queries) != NAMES) + ["--cluster"] * given.cluster
    more += ["--drivers", given.drivers] * (given.drivers is not None)
    arguments = f' ARGS="{" ".join(more)}"' if more else ""
    print(f"again with: make chaos SECONDS={given.seconds:g} SEED={seed}{arguments}")
    return 0 if total.good else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended then too
    sys.exit(main(sys.argv[1:]))
