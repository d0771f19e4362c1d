"""SC-5: the cost model of section XI."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

import springtide as st
from springtide.compiler.cost import Shape, cost_text, shape, strategies

FIGURE_1 = Shape(operators=6, stateful=2, prefix=True)


def test_sc5_hops_of_figure_1_on_90_nodes() -> None:
    """Section III: 2, 5 and 2 hops; subclusters of 90, 15 and 30 nodes."""
    assert [(s.name, s.hops, 90 / s.subclusters) for s in strategies(FIGURE_1, 90)] == [
        ("query-cloud", 2, 90),
        ("operator-cloud", 5, 15),
        ("operator-set-cloud", 2, 30),
    ]


@pytest.mark.parametrize("nodes", [1, 7, 90])
def test_sc5_formulas_of_section_11(nodes: int) -> None:
    l, s, alpha, beta, rho = 6, 2, 0.2, 0.7, 1e5  # noqa: E741 - the paper's names
    query, operator, operator_set = (x.cost(alpha, beta, rho) for x in strategies(FIGURE_1, nodes))
    assert query == pytest.approx(alpha * nodes * (nodes - 1) + beta * rho * s)
    assert operator == pytest.approx(alpha * nodes / l * (l - 1) + beta * rho * (l - 1))
    assert operator_set == pytest.approx(alpha * nodes / (s + 1) * s + beta * rho * s)


def test_sc5_without_a_prefix_there_is_one_hop_less() -> None:
    _, _, operator_set = strategies(Shape(operators=3, stateful=2, prefix=False), 30)
    assert (operator_set.subclusters, operator_set.hops, operator_set.fan_out) == (2, 1, 15)


def test_sc5_operator_set_is_the_cheapest_at_realistic_rates() -> None:
    query, operator, operator_set = (s.cost(alpha=0.9, beta=0.9, rate=1e5) for s in strategies(FIGURE_1, 90))
    assert operator_set < min(query, operator)


def test_query_without_operators_costs_nothing_to_send() -> None:
    assert [s.cost(1, 1, 1) for s in strategies(Shape(0, 0, False), 1)] == [0, 0, 0]


def test_shape_counts_neither_sources_nor_sinks(every_kind: st.Query) -> None:
    assert shape(every_kind) == Shape(operators=13, stateful=7, prefix=True)


def test_shape_without_prefix(stream: Callable[..., st.Stream]) -> None:
    counted = stream("s", x=pl.Int64).aggregate(window=st.tumbling("1m"), n=st.count()).filter(pl.col("n") > 1)
    assert shape(st.Query("q", counted.to(st.memory_sink()))) == Shape(operators=2, stateful=1, prefix=False)


def test_text(every_kind: st.Query, golden: Callable[[str, str], None]) -> None:
    golden("compiler/cost", cost_text(every_kind, nodes=90, alpha=0.1, beta=0.5, rate=250_000))


@pytest.mark.parametrize(
    ("nodes", "alpha", "beta", "rate"), [(0, 0.1, 0.1, 1), (1, 2, 0, 1), (1, 0, -1, 1), (1, 0, 0, -1)]
)
def test_weights_out_of_range_are_refused(
    every_kind: st.Query, nodes: int, alpha: float, beta: float, rate: float
) -> None:
    with pytest.raises(st.QueryError):
        cost_text(every_kind, nodes=nodes, alpha=alpha, beta=beta, rate=rate)
