"""The form of a query, part by part, as a checkpoint remembers it; and what differs between two of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NotRequired, TypedDict

from springtide.query.ids import EpochNumber, Micros
from springtide.state.shapes import anything, each, listed, may, names, record, text, whole

INPUTS = "inputs"
"""The part of a step that says which streams go into it, side by side."""
ORIGINS = "origins"
"""The part of a stateful step that says which sources and stateful steps are upstream of each side, whatever stateless steps are between."""
CONTENT: Final = "content"
"""What is said of the state of an aggregate that keeps values in order: all columns of its input, since tuples with equal times and places are ordered by them."""
TUPLES: Final = "tuples"
"""What is said of the state of an aggregate over the last n tuples: table → the columns of these that are in it."""
ROUTING: Final = "routing"
"""The part of a theta join that a user may leave to the compiler; what that chose is said of its state. A stream that is joined with itself is kept once."""
ITSELF = "broadcast, once"
"""The routing of a stream that is joined with itself."""
_SHOWN = 160


class StateDescription(TypedDict, total=False):
    """What is said of the state of a step, so that people can read it."""

    columns: str
    tables: list[str]
    """Those that people are shown, the most telling one first."""
    keys: list[str]
    aggregates: list[str]
    size: Micros
    """Of its window, if that has a length."""
    every: Micros
    routing: str
    content: str
    tuples: dict[str, list[str]]


class Replaced(TypedDict, total=False):
    """What an identity says besides once the query was replaced while it ran."""

    since: EpochNumber
    """Its first epoch."""
    places: str
    """A digest of where its rows come from and go to."""
    moved: EpochNumber
    """Since which epoch they have done so, if the query was replaced by one with other places."""


class Identity(Replaced):
    """Which query a checkpoint belongs to: as its springtide.json says it, and the manifests of a query that was replaced while it ran.

    It is compared and copied as it was read, with whatever a newer version may say besides; so it stays a dictionary.
    """

    query: str
    steps: dict[str, str]
    """Step → how it reads."""
    buckets: int
    hash: str
    polars: str
    forms: NotRequired[dict[str, dict[str, list[str]]]]
    """Step → its parts (`FormPart`). Older checkpoints may lack it, and what follows."""
    state: NotRequired[dict[str, StateDescription]]
    """Stateful step → what its state is about."""
    graph: NotRequired[dict[str, Any]]
    """For people, who see it drawn."""


@dataclass(frozen=True)
class FormPart:
    """One part of a step: how it reads and, if that is not all of it, a digest of the whole."""

    text: str
    digest: str = ""
    by: str = ""
    """What made the digest. `version`: the user set it. Digests of different makers cannot be compared."""

    def to_json(self) -> list[str]:
        """Write it as plain strings."""
        return [self.text, self.digest, self.by] if self.digest else [self.text]

    @staticmethod
    def from_json(data: Any) -> FormPart:
        """Read what `to_json` wrote."""
        return FormPart(*map(str, data))

    def change(self, now: FormPart) -> str | None:
        """Return how another part differs; None if it is the same, as far as can be known.

        >>> FormPart("x.sum()").change(FormPart("x.max()"))
        'x.sum() → x.max()'
        >>> FormPart("Count", "ab12", "source").change(FormPart("Count", "cd34", "source"))
        'Count (ab12) → Count (cd34)'
        >>> FormPart("Count", "ab12", "source").change(FormPart("Count", "ab12", "version"))
        """
        if self.text == now.text and (self.digest == now.digest or _incomparable(self.by, now.by)):
            return None
        both = (self, now)
        if self.text == now.text:
            return " → ".join(f"{_short(part.text)} ({part.digest or 'no digest'})" for part in both)
        return " → ".join(_short(part.text) for part in both)


def changes(found: Identity, wanted: Identity) -> Iterator[str]:
    """Return what is different in every step, one sentence each. What an older checkpoint does not say is not compared.

    >>> old = {"steps": {"a": "map: x"}, "forms": {"a": {"inputs": ["s, t"]}}}
    >>> list(changes(old, {"steps": {"a": "map: x"}, "forms": {"a": {"inputs": ["t, s"]}}}))
    ['step a: inputs: s, t → t, s']
    >>> list(changes({"steps": old["steps"]}, {"steps": {"b": "map: x"}}))
    ['step a was removed', 'step b is new']
    """
    before, after = found["steps"], wanted["steps"]
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"step {name} was removed"
        elif name not in before:
            yield f"step {name} is new"
        elif said := list(changed_parts(found, wanted, name, without=ORIGINS)):
            yield f"step {name}: {said[0]}"
        elif before[name] != after[name] and name not in found.get("forms", {}):
            yield f"step {name}: {_short(before[name])} → {_short(after[name])}"


def changed_parts(found: Identity, wanted: Identity, step: str, without: str) -> Iterator[str]:
    """Return which parts of a step are different, except for one that does not count."""
    before, after = (identity.get("forms", {}).get(step) for identity in (found, wanted))
    if before is None or after is None:
        return
    for part in sorted(before.keys() | after.keys()):
        if part == without:
            continue
        if part not in before or part not in after:
            yield f"{part} is {'new' if part in after else 'removed'}"
        elif change := FormPart.from_json(before[part]).change(FormPart.from_json(after[part])):
            yield f"{part}: {change}"


def changed_state(found: Identity, wanted: Identity, step: str) -> tuple[str, str] | None:
    """Return why what a step keeps is kept otherwise now, though the step is what it was, and what would fit; None if it is not, or if an older version did not say.

    It depends on what comes before a theta join whether a stream is joined with itself, and how its tuples are routed. An aggregate that
    keeps values in order keeps all columns with them; over the last n tuples, those that it reads, and all after a union.

    >>> once, grid = ({"state": {"near": {"routing": routing}}} for routing in (ITSELF, "grid"))
    >>> changed_state(once, grid, "near")
    ('a stream was joined with itself, and its tuples were kept once (broadcast, once → grid)', 'change both sides in the same way')
    >>> changed_state(grid, once, "near")
    ('its tuples were in other buckets (grid → broadcast, once)', 'say routing="grid"')
    """
    before, after = (of.get("state", {}).get(step, {}) for of in (found, wanted))
    was, now = before.get(CONTENT), after.get(CONTENT)
    if was is not None and now is not None and was != now:
        why = f"it keeps values in their order, together with all columns of its input ({was} → {now})"
        return why, "select the columns that it had, in their order, before it"
    for table, columns in after.get(TUPLES, {}).items():
        kept = before.get(TUPLES, {}).get(table, columns)
        if more := [column for column in columns if column not in kept]:
            why = f"it keeps {' '.join(kept)} of its last tuples, and would need {' '.join(more)} too"
            return why, "let it read what it did"
    was, now = before.get(ROUTING), after.get(ROUTING)
    if was is None or now is None or was == now:
        return None
    if was == ITSELF:
        why = "a stream was joined with itself, and its tuples were kept once"
        return f"{why} ({was} → {now})", "change both sides in the same way"
    return f"its tuples were in other buckets ({was} → {now})", f'say routing="{was}"'


def _incomparable(one: str, other: str) -> bool:
    """Return whether two digests cannot be compared, since different versions of a tool made them."""
    return one != other and _tool(one) == _tool(other)


def _tool(by: str) -> list[str]:
    return [word for word in by.replace(",", " ").split() if not word[0].isdigit()]


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# ── what an identity must look like ───────────────────────────────────────────────────────────────────────────────

_ABOUT_STATE = record(
    columns=may(text),
    tables=may(names),
    keys=may(names),
    aggregates=may(names),
    size=may(whole(1)),
    every=may(whole(1)),
    routing=may(text),
    content=may(text),
    tuples=may(each(names)),
)


def _state_description(where: str, value: Any) -> None:
    """Take what is said of the state of a step; the size of a window and its advance are useful only together."""
    _ABOUT_STATE(where, value)
    if ("size" in value) != ("every" in value):
        raise ValueError(f"{where} has a size or an advance, but not both")


def _part(where: str, value: Any) -> None:
    """Take a part of a step: how it reads, and perhaps a digest and what made that."""
    listed(text)(where, value)
    if not 1 <= len(value) <= 3:
        raise ValueError(f"{where} is not one to three strings")


check_identity = record(
    query=text,
    steps=each(text),
    buckets=whole(),
    hash=anything,
    polars=text,
    state=may(each(_state_description)),
    forms=may(each(each(_part))),
    since=may(whole()),
    places=may(text),
    moved=may(whole()),
)
"""Refuses a springtide.json that does not properly say whose the checkpoint is."""
