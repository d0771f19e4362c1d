"""Pass 3: decide how tuples find the instance that needs them (SC-6, ST-6)."""

from __future__ import annotations

from dataclasses import replace

from springtide.compiler.plan import Broadcast, Exchange, Grid, Hash, Plan, Routing, Single
from springtide.query import steps


def route(plan: Plan) -> Plan:
    """Give every exchange its routing: what must meet in the head's state must go to the same bucket.

    - `join`: hash of its keys on each side; `aggregate`: hash of `by`; an operator: hash of its keys, of each element
      where the key is a list. Without keys there is one bucket.
    - `top_k`: hash of `per` and `by`, so that one value is counted in one place; the rankings of the instances are
      merged by hash of `per`. With a sketch, which contains all values, hash of `per` from the start.
    - `theta_join`: as the user says, otherwise by this rule.
        - A window of tuples takes *broadcast*: which tuples are the last n of the other side is only known where every
          tuple is seen.
        - A window of time takes the *grid* when its sides are different streams of comparable weight. A grid sends and
          stores a tuple √N times (a row or a column of N instances); broadcast sends it N times.
        - Otherwise *broadcast*. It stores a tuple once, in turn, so its memory does not grow with N and no value can
          make one instance heavier than another. That is better where the grid costs most: when a stream is joined
          with itself (each tuple would be stored in a row and in a column), and when one side is much lighter (a
          square grid stores the heavy side √N times as well). Weights are not known before the query runs; a side
          that has gone through an aggregate or a ranking and one that has not are assumed to differ in weight.
    """
    return replace(plan, exchanges=tuple(replace(e, routing=_routing(plan, e)) for e in plan.exchanges))


def _routing(plan: Plan, exchange: Exchange) -> Routing:
    match plan.target(exchange):
        case steps.Join() as join:
            return Hash(join.left_on if exchange.side == 0 else join.right_on)
        case steps.Aggregate() as aggregate:
            return Hash(aggregate.by) if aggregate.by else Single()
        case steps.TopK() as top:
            by = () if top.sketch is not None or plan.subquery(exchange.target).merges else top.by
            return Hash((*top.per, *by)) if top.per or by else Single()
        case steps.Operate() as operate:
            return Hash(operate.keys, operate.many) if operate.keys else Single()
        case steps.ThetaJoin() as theta:
            return _grid(plan.buckets) if _prefers_grid(theta) else Broadcast()
        case other:
            raise TypeError(f"no routing is known for a {other.kind}")


def _prefers_grid(theta: steps.ThetaJoin) -> bool:
    if theta.routing is not None:
        return theta.routing == "grid"
    if theta.window.ordered:
        return False
    left, right = theta.inputs
    if (left.step, left.port) == (right.step, right.port):
        return False
    return _is_condensed(left.step) == _is_condensed(right.step)


def _is_condensed(step: steps.Step) -> bool:
    """Return whether every path from the sources to this step goes through an aggregate or a ranking."""
    todo, seen = [step], {step}
    while todo:
        here = todo.pop()
        if isinstance(here, steps.Aggregate | steps.TopK):
            continue
        if isinstance(here, steps.Source):
            return False
        fresh = [stream.step for stream in here.inputs if stream.step not in seen]
        todo.extend(fresh)
        seen.update(fresh)
    return True


def _grid(buckets: int) -> Grid:
    """Return a grid of the buckets that is as square as possible."""
    rows = 1 << (buckets.bit_length() - 1) // 2
    return Grid(rows, buckets // rows)
