"""Another form of a query in place of the one that runs: what it takes over, and what it cannot (SM-3). Pure.

    sources that stay         continue where they were; they must be the same sources
    sources that are new      begin at their beginning, but not before the time that the steps whose state stays have reached
    stateful steps that stay  keep their state, if it still means the same; a user's operator may convert it (`migrate`)
    stateful steps that come  begin with no state at this boundary
    all others                may change freely

A QueryError names the step that does not fit, why, and what would fit; in that case nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import polars as pl

from springtide.compiler.plan import Plan, Subquery
from springtide.exchange import gate
from springtide.query import steps
from springtide.query.aggregates import BoundAggregate
from springtide.query.errors import QueryError
from springtide.query.ids import EpochNumber, Micros
from springtide.query.operators import KeyOperator, migrates
from springtide.query.types import END_OF_TIME, schema_text
from springtide.runtime.backfilling import Built
from springtide.runtime.identity import identity, places_of
from springtide.runtime.old_owners import at_old_owners
from springtide.runtime.topology import origin_ranks, sources_upstream, sources_upstream_of_side
from springtide.state.forms import INPUTS, ORIGINS, ROUTING, FormPart, Identity, Replaced, changed_state, changes
from springtide.state.manifest import Manifest, SourceState

_FREE = {steps.Operate: ("operator", "on_error"), steps.Join: ("where",), steps.ThetaJoin: (ROUTING,)}
"""Kind of stateful step → its parts that may change, besides its input: they do not affect what its state means, or that is checked otherwise."""


@dataclass(frozen=True)
class Replacement:
    """What another form of a query begins with."""

    manifest: Manifest
    """The last manifest, as that form would have written it."""
    changes: tuple[str, ...]
    """The differences, one sentence each; empty if the two forms are the same."""
    leaving: tuple[str, ...] = ()
    """Sources and stateful steps that have been removed: their state is not in the manifest."""
    migrated: frozenset[str] = frozenset()
    """Subqueries whose state is converted for new code."""


def replacement(old: Plan, new: Plan, manifest: Manifest) -> Replacement:
    """Return what a form of a query begins with when it replaces another after an epoch; refuse what cannot be taken over."""
    before, after = identity(old), identity(new)
    _check_query(old, new)
    _check_names(old, new)
    for name in old.graph.steps.keys() & new.graph.steps.keys():
        _check_step(old, new, name, before, after)
    stay = [q for q in new.subqueries if q.head and _head(old, q.name) == q.head]
    begun = _times_of_new_sources(old, new, manifest, stay)
    _check_times(old, new, manifest, stay)
    names = {q.name for q in new.subqueries}
    kept = {q.name for q in stay} | {at_old_owners(q.name) for q in stay}
    migrated = {q.name for q in stay if _is_migrated(old, new, q, before, after)}
    told = tuple(changes(before, after)) + tuple(_changed_sinks(old, new))
    fitted = replace(
        manifest,
        sources={name: manifest.sources.get(name, begun.get(name)) for name in begun},  # type: ignore[misc]
        maps={n: m for n, m in manifest.maps.items() if n in kept or (n in names and n not in manifest.state)},
        state={n: s for n, s in manifest.state.items() if n in kept},
        old_owners={n: last for n, last in manifest.old_owners.items() if n in kept},
        elastic=None if manifest.elastic is None else manifest.elastic.about(names),
    )
    ranked = sorted((r := origin_ranks(old, manifest.origins)), key=r.__getitem__)
    ranks = origin_ranks(new, tuple(ranked))
    form: Identity = {**after, **_since(old, new, manifest)}
    fitted = replace(fitted, form=form, origins=tuple(sorted(ranks, key=ranks.__getitem__)))
    migrated |= {at_old_owners(n) for n in migrated if n in fitted.old_owners}
    return Replacement(
        fitted, told, tuple(sorted(_origins(old) - _origins(new))), frozenset(migrated & fitted.maps.keys())
    )


def _since(old: Plan, new: Plan, manifest: Manifest) -> Replaced:
    """Return what tells a run that stands by that this is another form than the one that it knows, perhaps with other places."""
    epoch, places = EpochNumber(manifest.epoch + 1), places_of(new)
    said: Replaced = {"since": epoch, "places": places}
    if places_of(old) != places:
        said["moved"] = epoch
    elif manifest.form is not None and "moved" in manifest.form:
        said["moved"] = manifest.form["moved"]
    return said


def with_history(found: Replacement, built: Built) -> Replacement:
    """Return a replacement in which steps that are new begin with state."""
    for name in built.state:
        if name in found.manifest.state:
            raise QueryError(
                f"{name} (subquery)", "it was added by another change meanwhile", "replace the query again"
            )
    before = found.manifest
    manifest = replace(before, maps=before.maps | dict(built.maps), state=before.state | dict(built.state))
    return replace(found, manifest=manifest, changes=(*found.changes, built.told))


# ── the same steps ────────────────────────────────────────────────────────────────────────────────────────────────


def _check_query(old: Plan, new: Plan) -> None:
    where = f"{new.graph.name} (query)"
    if old.graph.name != new.graph.name:
        raise QueryError(
            where, f"the query that runs is called {old.graph.name!r}", "give it that name, or start it by itself"
        )
    if old.buckets != new.buckets:
        raise QueryError(where, f"it has {new.buckets} buckets, not {old.buckets}", f"give it {old.buckets}")


def _check_names(old: Plan, new: Plan) -> None:
    """Refuse to guess which step is which, if stateful steps have no names and their number has changed."""
    for kind in {s.kind: None for p in (old, new) for s in p.graph if _remembers(s)}:
        before, after = ({n for n, s in p.graph.steps.items() if s.kind == kind and s.name is None} for p in (old, new))
        if before and after and before != after:
            name = sorted(before | after)[-1]
            raise QueryError(
                f"{name} ({kind})",
                f"there were {len(before)} such steps without a name, and now there are {len(after)}: nobody knows which is which",
                "give each a name: name=…",
            )


def _check_step(old: Plan, new: Plan, name: str, before: Identity, after: Identity) -> None:
    was, now = old.graph.steps[name], new.graph.steps[name]
    if not (_remembers(was) or _remembers(now)):
        return
    if type(was) is not type(now):
        raise _refusal(name, now, f"it was a step of another kind ({was.kind})")
    changed = dict(_changed_parts(before, after, name))
    if isinstance(now, steps.Source):
        for part, change in changed.items():
            raise _refusal(name, now, f"{part}: {change}", "it is then read from its beginning")
        return
    free = (INPUTS, ORIGINS, *_FREE.get(type(now), ()))
    for part, change in changed.items():
        if part not in free and not _is_own_function(was, now, part):
            raise _refusal(name, now, f"{part}: {change}")
    if (why := _misfit(was, now, before["state"].get(name), after["state"].get(name))) is not None:
        raise _refusal(name, now, why)
    if isinstance(was, steps.Operate) and isinstance(now, steps.Operate):
        _check_operator(name, was, now)
    if other := changed_state(before, after, name):
        why, works = other
        hint = f"{works}, or give it another name: it then begins with nothing"
        raise QueryError(f"{name} ({now.kind})", f"what it has cannot be taken over: {why}", hint)
    for q in (q for q in new.subqueries if q.head == name):
        if _distribution(old, q.name) != _distribution(new, q.name):
            raise _refusal(name, now, "its tuples are distributed to other buckets than before")


def _misfit(was: steps.Step, now: steps.Step, before: Any, after: Any) -> str | None:
    """Return why the rows in the state of a step are not those that it would keep now; None if they are."""
    if isinstance(was, steps.Aggregate) and isinstance(now, steps.Aggregate):
        types = [[s.inputs[0].schema[k] for k in s.by] for s in (was, now)]
        if types[0] != types[1]:
            return "its keys are of other types"
        for a, b in zip(was.aggregates, now.aggregates, strict=True):
            if _partial_schema(a) != _partial_schema(b) or _is_additive(a) != _is_additive(b):
                return f"partial results of {a.name} have other columns ({_layout_text(a)} → {_layout_text(b)})"
        return None
    columns = [of.get("columns") for of in (before, after) if of is not None]
    return f"its input has other columns ({' → '.join(map(str, columns))})" if len({*columns}) > 1 else None


def _is_own_function(was: steps.Step, now: steps.Step, part: str) -> bool:
    """Return whether a part of an aggregate is in a user's function, for which only partial results are kept."""
    if not isinstance(was, steps.Aggregate) or not isinstance(now, steps.Aggregate):
        return False
    own = [
        {a.name for a in s.aggregates if a.aggregate.user is not None or a.aggregate.definition is not None}
        for s in (was, now)
    ]
    return any(part.startswith(f"aggregates.{name}.") for name in own[0] & own[1])


def _partial_schema(bound: BoundAggregate) -> pl.Schema:
    """Return the columns of the partial results of an aggregate, as far as they can change while its function stays the same."""
    definition, dtype = bound.aggregate.definition, bound.input_type
    if bound.aggregate.user is not None or dtype is None:
        return bound.partial
    if definition is None:
        return pl.Schema({"": dtype})
    parts = definition.partials(pl.col("x"))
    return pl.LazyFrame(schema={"x": dtype}).select(p.add.alias(n) for n, p in parts.items()).collect_schema()


def _is_additive(bound: BoundAggregate) -> bool:
    """Return whether running totals are kept for it."""
    return bound.aggregate.definition is not None and bound.aggregate.definition.additive


def _layout_text(bound: BoundAggregate) -> str:
    return schema_text(_partial_schema(bound)) or "none"


def _check_operator(name: str, was: steps.Operate, now: steps.Operate) -> None:
    old, new = was.operator, now.operator
    if isinstance(old, KeyOperator) != isinstance(new, KeyOperator):
        raise _refusal(name, now, "it has one state per key or one per bucket, and that has changed")
    if not isinstance(old, KeyOperator) or not isinstance(new, KeyOperator):
        return
    if new.timer not in (None, old.timer):
        raise _refusal(name, now, f"its timer was {old.timer!r} and now is {new.timer!r}")
    if pl.Schema(old.state) != pl.Schema(new.state) and not migrates(new):
        columns = " → ".join(schema_text(pl.Schema(o.state)) for o in (old, new))
        raise QueryError(
            f"{name} (operator)",
            f"its state had other columns ({columns})",
            f"define {type(new).__name__}.migrate(old), which makes a state of one of before, or give the step another name",
        )


def _is_migrated(old: Plan, new: Plan, q: Subquery, before: Identity, after: Identity) -> bool:
    assert q.head is not None
    now = new.step(q.head)
    changed = any(part == "operator" for part, _ in _changed_parts(before, after, q.head))
    return isinstance(now, steps.Operate) and changed and migrates(now.operator)


def _changed_parts(before: Identity, after: Identity, step: str) -> Iterator[tuple[str, str]]:
    """Return the parts of a step that have changed, and how."""
    old, new = (form["forms"].get(step, {}) for form in (before, after))
    for part in sorted(old.keys() | new.keys()):
        if part not in old or part not in new:
            yield part, "new" if part in new else "no more"
        elif (change := FormPart.from_json(old[part]).change(FormPart.from_json(new[part]))) is not None:
            yield part, change


def _distribution(plan: Plan, name: str) -> tuple[Any, ...]:
    """Return how tuples find their buckets."""
    routings = sorted((e.side, str(e.routing), e.ordered) for e in plan.exchanges if e.target == name)
    found = next((q for q in plan.subqueries if q.name == name), None)
    return (None if found is None else found.buckets, tuple(dict.fromkeys(routings)))


def _refusal(name: str, step: steps.Step, why: str, then: str = "it then begins with nothing") -> QueryError:
    hint = f"keep it as it was, or give it another name: {then}"
    return QueryError(f"{name} ({step.kind})", f"what it has cannot be taken over: {why}", hint)


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _times_of_new_sources(old: Plan, new: Plan, manifest: Manifest, stay: list[Subquery]) -> dict[str, SourceState]:
    """Return how every source of the new form begins: if it leads to a step whose state stays, not before the time of that step."""
    begun = {}
    for name in new.graph.of_kind(steps.Source):
        reached = [
            time
            for q in stay
            for side, sources in _sides(new, q)
            if name in sources
            for time in _reached(old, q, side, manifest)
        ]
        latest = max(reached, default=gate.BEGINNING)
        begun[name] = SourceState(times={gate.UNSEEN: latest}) if latest > gate.BEGINNING else SourceState()
    return begun


def _check_times(old: Plan, new: Plan, manifest: Manifest, stay: list[Subquery]) -> None:
    """Refuse to connect a source that is already being read to a step that is ahead of it."""
    for q in stay:
        for side, sources in _sides(new, q):
            time = max(_reached(old, q, side, manifest), default=gate.BEGINNING)
            others = dict(_sides(old, q)).get(side, ())
            for source in sources:
                if source in others or source not in manifest.sources:
                    continue
                come = gate.merged_time({source: manifest.sources[source].times}, [source])
                if come < time:
                    raise QueryError(
                        f"{q.head} ({new.step(str(q.head)).kind})",
                        f"the source {source} comes to it now, and has been read up to {_when(come)}, while the step has come to {_when(time)}: "
                        "rows of the time between would come too late",
                        f"do it when {source} has come as far, or read it once more, under another name",
                    )


def _sides(plan: Plan, q: Subquery) -> list[tuple[int, tuple[str, ...]]]:
    assert q.head is not None
    return [(side, sources_upstream_of_side(plan, q, side)) for side in range(len(plan.step(q.head).inputs))]


def _reached(old: Plan, q: Subquery, side: int, manifest: Manifest) -> list[Micros]:
    """Return the times that a step and one of its inputs have reached."""
    times = {name: state.times for name, state in manifest.sources.items()}
    was = old.subquery(q.name)
    return [gate.merged_time(times, s) for s in (sources_upstream(old, was), dict(_sides(old, was)).get(side, ())) if s]


def _when(time: Micros) -> str:
    if time in (gate.BEGINNING, END_OF_TIME):
        return "its beginning" if time == gate.BEGINNING else "its end"
    return f"{datetime.fromtimestamp(time / 1e6, UTC):%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _remembers(step: steps.Step) -> bool:
    return step.stateful or isinstance(step, steps.Source)


def _origins(plan: Plan) -> set[str]:
    return {name for name, step in plan.graph.steps.items() if _remembers(step)}


def _head(plan: Plan, subquery: str) -> str | None:
    return next((q.head for q in plan.subqueries if q.name == subquery), None)


def _changed_sinks(old: Plan, new: Plan) -> Iterator[str]:
    before, after = (p.graph.of_kind(steps.Sink) for p in (old, new))
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"sink {name} was removed"
        elif name not in before:
            yield f"sink {name} is new"
        elif before[name].describe() != after[name].describe():
            yield f"sink {name}: {before[name].describe()} → {after[name].describe()}"
