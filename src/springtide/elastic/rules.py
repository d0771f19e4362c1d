"""The rules that apply to every policy's proposals: grace, limits, confirmations, slots, veto. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from springtide.elastic.instructions import instruct
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot
from springtide.query.plurals import plural
from springtide.state.instructions import Instruction, Refusal, Rule
from springtide.state.manager_state import ManagerState

Ruling = tuple[Instruction | None, Refusal | None]
"""What is done, and what is refused: both if a proposal is cut down, neither if it changes nothing."""


def judge(
    proposal: Proposal, summary: Snapshot, elastic: Elastic, state: ManagerState, decided: Mapping[str, Instruction]
) -> Ruling:
    """Check a proposal against every rule, in this order; the first rule that refuses it ends the check.

    `decided` has the instructions just given to other subqueries.
    """
    name = proposal.subquery
    if name not in summary.subqueries:
        return None, refusal(summary, proposal, "proposal", "there is no such subquery")
    if proposal.held_back:
        return None, refusal(summary, proposal, "experience", proposal.held_back)
    quiet = resting(summary, name, elastic, state)
    if quiet is not None:
        return None, refusal(summary, proposal, *quiet)
    cut = None
    if proposal.instances is not None:
        wanted, broken = _degree(name, proposal.instances, summary, elastic, state, decided)
        cut = refusal(summary, proposal, *broken) if broken else None
        if wanted is None:
            return None, cut
        if wanted != proposal.instances:
            why = f"{proposal.reason}; held at {wanted}" + (f": {broken[1]}" if broken else "")
            proposal = replace(proposal, instances=wanted, owners=None, reason=why)
    try:
        own, loads = summary.subqueries[name], summary.bucket_loads(name)
        instruction = instruct(proposal, own.map, summary.time, summary.epoch, loads, own.grid)
    except ValueError as error:
        return None, refusal(summary, proposal, "proposal", str(error))
    objection = _objection(instruction, elastic) if instruction else None
    return (instruction, cut) if objection is None else (None, refusal(summary, proposal, "veto", objection))


def resting(summary: Snapshot, name: str, elastic: Elastic, state: ManagerState) -> tuple[Rule, str] | None:
    """Return why a subquery is to be left alone for now; None if it is not."""
    if name in state.underway:
        return "underway", "the last change is still under way"
    since = summary.time - state.changed.get(name, -math.inf)
    if 0 <= since < elastic.grace:
        return "grace", f"the last change was {since:.1f} s ago, less than {elastic.grace:g} s"
    return None


def refusal(summary: Snapshot, proposal: Proposal, rule: Rule, why: str) -> Refusal:
    """Make a record of what was refused."""
    return Refusal(summary.time, summary.epoch, proposal.subquery, rule, str(proposal), why)


def _degree(
    name: str,
    asked: int,
    summary: Snapshot,
    elastic: Elastic,
    state: ManagerState,
    decided: Mapping[str, Instruction],
) -> tuple[int | None, tuple[Rule, str] | None]:
    """Return the number of instances that is allowed (None if it is to stay as it is), and the rule that reduced it."""
    own, wanted = summary.subqueries[name], asked
    broken: tuple[Rule, str] | None = None
    least, most = elastic.bounds(name, own.most)
    if wanted < least:
        wanted, broken = least, ("limit", f"it has at least {least}")
    elif most is not None and wanted > most:
        wanted, broken = most, ("limit", f"it has at most {most}")
    if wanted < own.instances:
        summaries = state.fewer_wanted.get(name, ())
        if len(summaries) < elastic.confirmations:
            return None, (
                "confirmations",
                f"{len(summaries)} of {plural(elastic.confirmations, 'summary')} in a row asked for it",
            )
        wanted = min(own.instances, max(wanted, *summaries))  # the most cautious of them
    elif wanted > own.instances:
        free = _free(summary, name, elastic, state, decided)
        if free is not None and wanted > free:
            wanted = max(free, own.instances)
            broken = ("slots", f"there are slots for {plural(wanted, 'instance')}")
    return (None if wanted == own.instances != asked else wanted), broken


def _free(
    summary: Snapshot, name: str, elastic: Elastic, state: ManagerState, decided: Mapping[str, Instruction]
) -> int | None:
    """Count the slots that the other subqueries of its stage leave to a subquery."""
    if elastic.slots is None:
        return None
    coming = {**state.underway, **decided}
    others = [
        coming[other].after.instances if other in coming else own.instances
        for other, own in summary.subqueries.items()
        if other != name and summary.levels[other] == summary.levels[name]
    ]
    return elastic.slots - sum(others)


def _objection(instruction: Instruction, elastic: Elastic) -> str | None:
    """Ask the user's veto; if it fails, it counts as a refusal."""
    if elastic.veto is None:
        return None
    try:
        return elastic.veto(instruction)
    except Exception as error:
        return f"the veto failed, {type(error).__name__}: {error}"
