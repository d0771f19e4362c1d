"""Steps that run a user's own code: the operator, its keys, and the schemas that it declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from springtide.query import steps
from springtide.query.building.checks import check_timed, keys_of, names_of
from springtide.query.building.labels import label_after
from springtide.query.errors import QueryError, nearest, shown
from springtide.query.expressions import check_columns
from springtide.query.operators import OWN_KEYS, BucketOperator, KeyOperator, UserOperator
from springtide.query.types import TIME, TS, Names, check_keys, schema_from, type_text

if TYPE_CHECKING:
    from springtide.query.stream import Stream


def operator_step(
    stream: Stream, operator: UserOperator, *, keys: Names, on_error: steps.OnError, name: str | None
) -> steps.Operate:
    """Run a user's operator with explicit state."""
    label = label_after(stream, "operator", name)
    check_timed(label, stream)
    _check_operator(label, operator)
    names = names_of(label, "keys", keys)
    many = _check_keys(label, stream, names)
    schema = _output(label, operator)
    if isinstance(operator, KeyOperator):
        _check_state(label, operator)
        if not names:
            problem = f"{type(operator).__name__} works per key, but no keys are given"
            raise QueryError(label, problem, "name them: keys='user'")
    _check_policy(label, stream, on_error)
    return steps.Operate(
        name=name, inputs=(stream,), schema=schema, operator=operator, keys=names, many=many, on_error=on_error
    )


def _check_operator(label: str, operator: UserOperator) -> None:
    if isinstance(operator, type):
        raise QueryError(label, f"{operator.__name__} is a class", f"give an object: {operator.__name__}()")
    if not isinstance(operator, BucketOperator | KeyOperator):
        hint = "derive a class from st.KeyOperator or st.BucketOperator and give an object of it"
        raise QueryError(label, f"{shown(operator)} is not an operator", hint)


def _check_policy(label: str, stream: Stream, on_error: steps.OnError) -> None:
    if not isinstance(on_error, str) or on_error not in ("fail", "reject"):
        problem = f"on_error={shown(on_error)} is unknown"
        raise QueryError(label, problem, "use 'fail', or 'reject' to send rows that fail to .rejected")
    if on_error == "reject" and steps.REASON in stream.schema:
        problem = f"rejected rows get a column {steps.REASON!r}, and there is already such a column"
        raise QueryError(label, problem, "rename it before this step")


def _check_keys(label: str, stream: Stream, names: tuple[str, ...]) -> bool:
    """Refuse what cannot be a key; return whether the only key is a list, so that a tuple has many keys."""
    check_columns(label, stream.schema, names)
    types = [stream.schema[n] for n in names]
    if len(types) == 1 and isinstance(types[0], pl.List):
        check_keys(label, names, pl.Schema({names[0]: types[0].inner}))
        if OWN_KEYS in stream.schema:
            problem = (
                f"the operator gets the keys of a tuple in a column {OWN_KEYS!r}, and there is already such a column"
            )
            raise QueryError(label, problem, "rename it before this step")
        return True
    for key, dtype in zip(names, types, strict=True):
        if isinstance(dtype, pl.List):
            raise QueryError(
                label,
                f"{key!r} is a list, which cannot be combined with other keys",
                "explode it first, or make it the only key",
            )
    keys_of(label, stream, "keys", names)
    return False


def _output(label: str, operator: UserOperator) -> pl.Schema:
    """Return the output schema that the operator declares; it must contain `ts`."""
    output = getattr(operator, "output", None)
    if not isinstance(output, Mapping) or not output:
        raise QueryError(
            label, f"{type(operator).__name__} declares no output schema", "set output = {'ts': st.TIME, ...}"
        )
    schema = schema_from(label, "output", output)
    if schema.get(TS) != TIME:
        problem = "lacks ts" if TS not in schema else f"has ts as {type_text(schema[TS])}"
        raise QueryError(
            label,
            f"the output schema of {type(operator).__name__} {problem}",
            "add 'ts': st.TIME; each output row carries the time of what caused it",
        )
    return schema


def _check_state(label: str, operator: KeyOperator) -> None:
    """Refuse a state without a schema, and a timer that is not a column of it with a time."""
    state = getattr(operator, "state", None)
    if not isinstance(state, Mapping):
        raise QueryError(
            label, f"{type(operator).__name__} declares no state schema", "set state = {'total': pl.Int64, ...}"
        )
    columns = schema_from(label, "state", state)
    timer = operator.timer
    if timer is None:
        return
    if not isinstance(timer, str) or timer not in columns:
        problem = f"the timer {shown(timer)} is not a column of the state"
        raise QueryError(label, problem, nearest(str(timer), columns))
    if columns[timer] != pl.Int64:
        problem = f"the timer {timer!r} is {type_text(columns[timer])}"
        raise QueryError(label, problem, "it is a time in microseconds: make it pl.Int64")
