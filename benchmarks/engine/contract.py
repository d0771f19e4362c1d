"""The contract: random cases of every kind for ten minutes in two processes. How many there were, and how many came out wrong."""

import time
from random import SystemRandom

from benchmarks.measure import result, say
from tests.contract.kinds import KINDS
from tests.contract.runner import Job, Total, run

SECONDS = 600.0


def main(seconds: str = str(SECONDS), seed: str | None = None) -> None:
    first = int(seed) if seed is not None else SystemRandom().randrange(10**9)
    started = shown = time.monotonic()

    def said(total: Total) -> None:
        nonlocal shown
        if time.monotonic() - shown > 30:
            shown = time.monotonic()
            say(f"{total.cases} cases, {len(total.wrong)} wrong")

    total = run(Job(list(KINDS), first, float(seconds)), said)
    for wrong in total.wrong:
        say(f"wrong: {wrong}")
    result(
        "contract",
        cases=total.cases,
        wrong=len(total.wrong),
        seconds=time.monotonic() - started,
        seed=first,
        kinds=total.counts,
    )
