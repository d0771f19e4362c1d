"""User operators: code with explicit state, written as if there were one thread and one machine.

A `BucketOperator` gets one state per bucket and whole frames of tuples; a `KeyOperator` gets one state per key. Both see
only ready tuples, in the total order, and never need a lock. What an operator returns must not depend on how its input is cut:

    process(s, a + b) = process(s, a) then process(s, b)          springtide.testing.check_operator checks this
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import polars as pl

State = TypeVar("State")

OWN_KEYS = "own_keys"
"""If `keys` names a list column: the keys of this tuple that belong to this state, without repetition."""

_JSON = "json"


class BucketOperator(ABC, Generic[State]):
    """User code with one state per bucket (ST-4, SM-1).

    `ready_ts` is a time in microseconds: after this call, no tuple from before that time will come.

    >>> class Count(st.BucketOperator[dict]):
    ...     output = {"word": pl.String, "n": pl.Int64, "ts": st.TIME}
    ...
    ...     def init(self):
    ...         return {}
    ...
    ...     def process(self, state, tuples, ready_ts):
    ...         rows = []
    ...         for word, ts in tuples.select("word", "ts").iter_rows():
    ...             state[word] = state.get(word, 0) + 1
    ...             rows.append({"word": word, "n": state[word], "ts": ts})
    ...         return pl.DataFrame(rows, schema=self.output)
    """

    output: ClassVar[Mapping[str, Any]]
    """Names and types of the output's columns, including `ts`."""

    @abstractmethod
    def init(self) -> State:
        """Return the state of a bucket that has not seen any tuples yet."""

    @abstractmethod
    def process(self, state: State, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame | None:
        """Process ready tuples, in order: change the state and return output rows, none earlier than the tuple that caused it."""

    def on_time(self, state: State, ready_ts: int) -> pl.DataFrame | None:
        """React to time having reached `ready_ts`; called after `process`, and for buckets without tuples too."""
        return None

    def serialize(self, state: State) -> pl.DataFrame:
        """Return the state as a frame: a frame as it is, a dict or list of plain values as JSON."""
        if isinstance(state, pl.DataFrame):
            return state
        return pl.DataFrame({_JSON: [json.dumps(state, sort_keys=True)]})

    def deserialize(self, data: pl.DataFrame) -> State:
        """Return the state that `serialize` wrote."""
        state: Any = json.loads(data[_JSON][0]) if data.columns == [_JSON] else data
        return state  # type: ignore[no-any-return]

    def partition(self, state: State, parts: int, part_of: Callable[[Any], int]) -> Sequence[State]:
        """Return the state cut into `parts`; `part_of(key)` says which part a key goes to. A dict is cut by its keys."""
        if not isinstance(state, dict):
            raise TypeError(
                f"{type(self).__name__} keeps its state in a {type(state).__name__}: define partition(state, parts, part_of) to cut it"
            )
        cut: Any = [{k: v for k, v in state.items() if part_of(k) == i} for i in range(parts)]
        return cut  # type: ignore[no-any-return]

    def merge(self, states: Sequence[State]) -> State:
        """Return the one state that `partition` would cut into these. Dicts are joined."""
        if not all(isinstance(s, dict) for s in states):
            raise TypeError(f"{type(self).__name__}: define merge(states) to join its states")
        joined: Any = {k: v for s in states if isinstance(s, dict) for k, v in s.items()}
        return joined  # type: ignore[no-any-return]

    def free(self, state: State) -> None:
        """Release what the state holds outside Python's memory."""

    def migrate(self, old: Any) -> State:
        """Return a state made from one that other code wrote: called when this operator replaces another while the query runs.

        `old` is what the other operator's `serialize` wrote: a dict or a list if it left that to us, otherwise its frame. This may be called more
        than once. An operator that does not define it takes over the state as it is.
        """
        raise NotImplementedError


class KeyOperator(ABC):
    """User code with one small typed state per key, kept as one row of a frame.

    >>> class Fold(st.KeyOperator):
    ...     state = {"total": pl.Int64}
    ...     output = {"user": pl.String, "total": pl.Int64, "ts": st.TIME}
    ...
    ...     def init(self, key):
    ...         return {"total": 0}
    ...
    ...     def process(self, key, state, tuples, ready_ts):
    ...         rows = []
    ...         for amount, ts in tuples.select("amount", "ts").iter_rows():
    ...             state["total"] += amount
    ...             rows.append({"user": key[0], "total": state["total"], "ts": ts})
    ...         return rows
    """

    output: ClassVar[Mapping[str, Any]]
    """Names and types of the output's columns, including `ts`."""

    state: ClassVar[Mapping[str, Any]]
    """Names and types of the state's columns."""

    timer: ClassVar[str | None] = None
    """A column of the state that holds a time in microseconds: `on_time` is called when that time is reached."""

    @abstractmethod
    def init(self, key: tuple[Any, ...]) -> dict[str, Any]:
        """Return the state of a key that has not been seen before."""

    @abstractmethod
    def process(
        self, key: tuple[Any, ...], state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int
    ) -> Sequence[Mapping[str, Any]]:
        """Process ready tuples of this key, in order: change the state and return output rows."""

    def on_time(self, key: tuple[Any, ...], state: dict[str, Any], ready_ts: int) -> Sequence[Mapping[str, Any]]:
        """React to the timer's time having come: tuples from before it are done, later ones are not. Set the timer again, or to None."""
        return ()

    def keep(self, key: tuple[Any, ...], state: dict[str, Any]) -> bool:
        """Return whether the state is still worth keeping; a key whose state is dropped starts again with `init`.

        This is asked after every call. An operator that defines it gets its tuples one by one.
        """
        return True

    def migrate(self, old: dict[str, Any]) -> dict[str, Any]:
        """Return a state made from one that other code wrote: called when this operator replaces another while the query runs.

        This may be called more than once, and must leave the timer as it was. An operator that does not define it takes over the state as it is,
        provided that its columns are the same.
        """
        raise NotImplementedError


def migrates(operator: BucketOperator[Any] | KeyOperator) -> bool:
    """Return whether an operator defines `migrate`."""
    base = BucketOperator if isinstance(operator, BucketOperator) else KeyOperator
    return type(operator).migrate is not base.migrate


UserOperator = BucketOperator[Any] | KeyOperator
"""Either kind of operator."""
