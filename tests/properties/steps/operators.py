"""Users' operators: by key and by bucket, with timers, with several keys per tuple, and with rows that they cannot process.

What they give depends on every value of every tuple and on the order, so that nothing can be left out or mixed up unseen.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from zlib import crc32

import polars as pl

import springtide as st


def make(maker: Any, pool: list[Any], made: Any) -> Any:
    """Choose an operator, its keys, and what happens to rows that it does not like."""
    r, stream = maker.random, made.stream
    keys, stream = _keys(maker, stream)
    picky = r.random() < 0.4 and "reason" not in stream.schema
    span = maker.unit * r.choice([1, 2, 5, 20])
    kinds = [Fold, Fold, Silence, Ticks] if keys else []
    kind = r.choice([*kinds, Digests, Digests, Frames, Windows])
    operator = kind(list(keys), isinstance(stream.schema[keys[0]], pl.List) if keys else False, span, picky)
    given = stream.operator(operator, keys=keys, on_error="reject" if picky else "fail")
    if picky:
        maker.sides.append(given.rejected)
    return type(made)(given)


def _keys(maker: Any, stream: Any) -> tuple[tuple[str, ...], Any]:
    """Choose no keys, one, two, or a list of them; where there is no list, sometimes make one."""
    r, schema = maker.random, stream.schema
    lists = [n for n, t in schema.items() if isinstance(t, pl.List) and _is_key(t.inner)]
    plain = [n for n, t in schema.items() if n != "ts" and _is_key(t)]
    if r.random() < 0.4 and "own_keys" not in schema:
        if not lists and plain:
            name, of = maker.fresh("keys"), r.choice(plain)
            other = r.choice([n for n in plain if schema[n] == schema[of]])
            stream, lists = stream.map(pl.concat_list(of, other, of).alias(name)), [name]
        if lists:
            return (r.choice(lists),), stream
    return tuple(r.sample(plain, min(len(plain), r.choice([0, 1, 1, 1, 2])))), stream


def _is_key(dtype: Any) -> bool:
    return bool(dtype.is_integer() or dtype.is_temporal() or dtype.is_decimal() or dtype in (pl.String, pl.Boolean))


class Common:
    """What the operators share: they know their keys by their texts, and may be picky about rows."""

    def __init__(self, keys: list[str], many: bool, span: int, picky: bool) -> None:
        self.keys, self.many, self.span, self.picky = keys, many, span, picky

    def seen(self, tuples: pl.DataFrame) -> list[tuple[list[str], str, Any]]:
        """Give of each tuple its keys, its content and its time."""
        names = [n for n in tuples.columns if n != "own_keys"]
        at, found = [names.index(k) for k in self.keys], []
        own = tuples["own_keys"].to_list() if self.many else [()] * tuples.height
        for row, listed in zip(tuples.select(names).iter_rows(), own, strict=True):
            keys = [repr((key,)) for key in listed] if self.many else [repr(tuple(row[i] for i in at))]
            found.append((keys, repr(row), row[names.index("ts")]))
        return found

    def dislikes(self, text: str) -> int:
        """Say what is wrong with a row: nothing (0), or one of three things."""
        return crc32(text.encode()) % 8 if self.picky and crc32(text.encode()) % 8 < 4 else 0


def _micros(ts: datetime) -> int:
    return (ts - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _next(digest: int, text: str) -> int:
    return crc32(text.encode(), digest)


class Fold(Common, st.KeyOperator):
    """A running digest of all tuples of a key."""

    state: ClassVar = {"n": pl.Int64, "digest": pl.Int64, "last": pl.List(pl.String)}
    output: ClassVar = {"key": pl.String, "n": pl.Int64, "digest": pl.Int64, "ts": st.TIME}

    def init(self, key: Any) -> Any:
        return {"n": 0, "digest": 0, "last": []}

    def process(self, key: Any, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
        rows = []
        for _, text, ts in self.seen(tuples):
            state["n"] += 1
            state["digest"] = _next(state["digest"], text)
            state["last"].append(text[:3])
            row = {"key": repr(key), "n": state["n"], "digest": state["digest"], "ts": ts}
            match self.dislikes(text):
                case 1:
                    raise ValueError(text)
                case 2:
                    row["n"] = "many"
                case 3:
                    state["digest"] += 0.5
            rows += [row] if self.gives(state, ts) else []
        return rows

    def gives(self, state: Any, ts: Any) -> bool:
        """Do what else is to be done with a tuple, and say whether its row is given."""
        return True


class Timed(Fold):
    """A digest that is given by a timer."""

    state: ClassVar = Fold.state | {"due": pl.Int64}
    timer = "due"

    def init(self, key: Any) -> Any:
        return super().init(key) | {"due": None}

    def on_time(self, key: Any, state: Any, ready_ts: int) -> Any:
        state["due"] = None
        return [{"key": f"{key!r} at {ready_ts}", "n": state["n"], "digest": state["digest"], "ts": ready_ts}]


class Silence(Timed):
    """When a key has been quiet for a while; then it is forgotten."""

    def gives(self, state: Any, ts: Any) -> bool:
        state["due"] = _micros(ts) + self.span * (state["n"] % 3 - (state["n"] % 5 == 0))
        return bool(state["n"] % 2)

    def keep(self, key: Any, state: Any) -> bool:
        return state["due"] is not None


class Ticks(Timed):
    """Several times after the first tuple, at growing distances; sometimes the timer is taken back."""

    def gives(self, state: Any, ts: Any) -> bool:
        if state["digest"] % 7 == 0:
            state["due"] = None
        elif state["due"] is None:
            state["due"] = _micros(ts) + self.span
        return self.picky

    def on_time(self, key: Any, state: Any, ready_ts: int) -> Any:
        rows = super().on_time(key, state, ready_ts)
        state["n"] += 1
        state["due"] = ready_ts + self.span * state["n"]
        return rows


class Digests(Common, st.BucketOperator[Any]):
    """The same digests for all keys of a bucket."""

    output: ClassVar = Fold.output

    def init(self) -> Any:
        return {}

    def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
        rows = []
        for keys, text, ts in self.seen(tuples):
            for key in keys:
                n, digest = state.get(key, (0, 0))
                state[key] = [n + 1, _next(digest, text)]
                rows.append({"key": key, "n": n + 1, "digest": state[key][1], "ts": ts})
                match self.dislikes(text):
                    case 1:
                        raise ValueError(text)
                    case 2:
                        return pl.DataFrame(rows).cast({"n": pl.Float64})
                    case 3:
                        rows[-1]["ts"] = None
        return pl.DataFrame(rows, schema=self.output)


class Frames(Digests):
    """The same with a state that is written as a frame."""

    def serialize(self, state: Any) -> pl.DataFrame:
        rows = [(key, n, digest) for key, (n, digest) in sorted(state.items())]
        return pl.DataFrame(rows, schema={"key": pl.String, "n": pl.Int64, "digest": pl.Int64}, orient="row")

    def deserialize(self, data: pl.DataFrame) -> Any:
        return {key: [n, digest] for key, n, digest in data.iter_rows()}


class Windows(Digests):
    """Digests per key and window, given when time has come to its end."""

    def process(self, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
        for keys, text, ts in self.seen(tuples):
            for key in keys:
                name = f"{_micros(ts) // self.span * self.span + self.span} {key}"
                n, digest = state.get(name, (0, 0))
                state[name] = [n + 1, _next(digest, text)]
                if self.dislikes(text):
                    raise ValueError(text)

    def on_time(self, state: Any, ready_ts: int) -> Any:
        rows = []
        for name in sorted(state):
            end, _, key = name.partition(" ")
            if int(end) <= ready_ts:
                n, digest = state.pop(name)
                rows.append({"key": key, "n": n, "digest": digest, "ts": int(end) - 1})
        return pl.DataFrame(rows, schema=self.output)
