"""What became of the rows of a query: totals that every epoch adds to, and whether they add up. Pure.

read = accepted + late + rejected        of every source
sent = received                          between two subqueries
given = written                          of every sink: rows that the steps gave, rows in the outbox
expired = 0                              of every stateful step: rows that came after their time, and are in no result
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from springtide.query.plurals import plural

Accounts = Mapping[str, Mapping[str, int]]
"""What is counted → what is said of it → rows, since the checkpoint began to count."""

SOURCE, EXCHANGE, SINK, STEP = "source", "exchange", "sink", "step"
"""The first word of what is counted."""


def add(before: Accounts, *more: Accounts) -> dict[str, dict[str, int]]:
    """Add counts to totals.

    >>> add({"source s": {"read": 2}}, {"source s": {"read": 1, "late": 1}})
    {'source s': {'read': 3, 'late': 1}}
    """
    total = {name: dict(counts) for name, counts in before.items()}
    for accounts in more:
        for name, counts in accounts.items():
            own = total.setdefault(name, {})
            for what, rows in counts.items():
                own[what] = own.get(what, 0) + rows
    return total


def imbalances(accounts: Accounts) -> Iterable[str]:
    """Return what does not add up, a sentence each.

    >>> list(imbalances({"source s": {"read": 3, "accepted": 1, "late": 1}, "step sums": {"expired": 0}}))
    ['source s: read 3 rows, but 1 accepted, 1 late and 0 rejected make 2']
    >>> list(imbalances({"exchange a → b": {"sent": 2, "received": 2}, "step b": {"expired": 7}}))
    ['step b: 7 rows came too late for any result']
    """
    for name, counts in accounts.items():
        n = Counter(counts)
        kind = name.split(" ", 1)[0]
        told = n["accepted"] + n["late"] + n["rejected"]
        if kind == SOURCE and n["read"] != told:
            parts = f"{n['accepted']} accepted, {n['late']} late and {n['rejected']} rejected"
            yield f"{name}: read {plural(n['read'], 'row')}, but {parts} make {told}"
        elif kind == EXCHANGE and n["sent"] != n["received"]:
            yield f"{name}: sent {plural(n['sent'], 'row')}, and received {n['received']}"
        elif kind == SINK and n["given"] != n["written"]:
            yield f"{name}: was given {plural(n['given'], 'row')}, and wrote {n['written']}"
        elif kind == STEP and n["expired"]:
            yield f"{name}: {plural(n['expired'], 'row')} came too late for any result"
