"""ST-9: the model of section 8, with the values of table 1."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import springtide as st
from springtide.compiler.scalability import Costs, highest, pure, scalability_text, virtual

TABLE_1 = Costs()


def test_st9_times_of_table_1() -> None:
    assert pure(TABLE_1, 4).processing == virtual(TABLE_1, 4).processing == 4
    assert pure(TABLE_1, 4).input == pytest.approx(1 + 0.1 * 4)
    assert virtual(TABLE_1, 4).input == pytest.approx(1 + 0.01 * 4)
    assert pure(TABLE_1, 4).output == pytest.approx(1 + 0.1 * 4 * 1.386294)
    assert virtual(TABLE_1, 4).output == pytest.approx(1 + 0.01 * 4 * 1.386294)


def test_st9_rates_are_the_inverse_of_times() -> None:
    assert virtual(TABLE_1, 8).rates == pytest.approx((1 / 1.08, 8 / 16, 1 / (1 + 0.08 * 2.0794415)))


def test_st9_virtual_scales_further_than_pure() -> None:
    far, near = highest(virtual, TABLE_1), highest(pure, TABLE_1)
    assert (far, near) == (12, 6)
    for times, top in ((virtual, far), (pure, near)):
        last, beyond = times(TABLE_1, top), times(TABLE_1, top + 1)
        assert last.processing == max(last.input, last.processing, last.output)
        assert beyond.processing < max(beyond.input, beyond.output)


def test_st9_between_the_two_virtual_is_better() -> None:
    """The paper's last inequality: for these n the output thread is the limit of P_SN and not yet of V_SN."""
    for n in range(highest(pure, TABLE_1) + 1, highest(virtual, TABLE_1) + 1):
        assert virtual(TABLE_1, n).output < virtual(TABLE_1, n).processing < pure(TABLE_1, n).output


def test_without_overheads_both_scale_to_the_ratio_of_processing_to_input() -> None:
    free = Costs(processing=100, route=0, share=0, merge_pure=0, merge_virtual=0)
    assert highest(virtual, free) == highest(pure, free) == 100


def test_light_operator_does_not_scale() -> None:
    assert highest(virtual, Costs(processing=0.5)) == 0
    assert "does not scale" in scalability_text(Costs(processing=0.5))


def test_text(golden: Callable[[str, str], None]) -> None:
    golden("compiler/scalability", scalability_text(TABLE_1))


def test_text_of_a_heavy_operator_stays_short(golden: Callable[[str, str], None]) -> None:
    golden("compiler/scalability-heavy", scalability_text(Costs(processing=2_000, share=0.001, merge_virtual=0.001)))


def test_negative_times_are_refused() -> None:
    with pytest.raises(st.QueryError, match="below zero"):
        scalability_text(Costs(route=-1))
