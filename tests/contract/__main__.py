"""Run random cases of every kind: python -m tests.contract [--seconds 60] [--seed 7] [--kind engine …] [--cases 100].

`make contract SECONDS=600` does the same. Every case compares what the engine did with what it must do; it ends with 1 when any is wrong.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from random import SystemRandom

SHOWN = 15.0
"""Seconds between two lines of progress."""


def main(arguments: list[str]) -> int:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before anything imports Polars
    from tests.contract.kinds import KINDS
    from tests.contract.runner import PROCESSES, Job, Total, run

    parser = argparse.ArgumentParser(prog="contract", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long, for all kinds together")
    parser.add_argument("--seed", type=int, default=None, help="the first seed of each kind; without it any")
    parser.add_argument("--kind", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--cases", type=int, default=None, help="at most so many of each kind")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    given = parser.parse_args(arguments)
    seed = SystemRandom().randrange(10**9) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    started = shown = time.monotonic()
    known = 0

    def said(total: Total) -> None:
        nonlocal shown, known
        for wrong in total.wrong[known:]:
            print(f"WRONG {wrong}\n", flush=True)
        known = len(total.wrong)
        if time.monotonic() - shown >= SHOWN:
            shown = time.monotonic()
            print(f"{shown - started:5.0f} s  {total.cases} cases, {known} wrong", flush=True)

    job = Job(given.kind, seed, given.seconds, given.cases)
    total = run(job, said, given.processes)
    took = time.monotonic() - started
    for kind, count in total.counts.items():
        bad = sum(w.kind == kind for w in total.wrong)
        print(f"{count:8} {kind}: {total.seconds[kind] / count * 1000:.0f} ms each, {bad} wrong")
    for wrong in total.wrong:
        print(f"  again: make contract KIND={wrong.kind} SEED={wrong.seed} CASES=1")
    print(f"{total.cases:8} cases in {took:.0f} s, {total.cases / took:.1f} a second")
    print(f"{len(total.wrong):8} wrong")
    return 1 if total.wrong or not total.cases else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended then too
    sys.exit(main(sys.argv[1:]))
