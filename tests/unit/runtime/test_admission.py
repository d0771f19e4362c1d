"""How many rows an epoch takes: more while epochs are short and rows are waiting, never more than there is room for."""

import pytest

from springtide.runtime.admission import MOST, USUAL, Admission


def after(*epochs: tuple[float, int], bound: int | None = None) -> int:
    admission = Admission(bound)
    for seconds, waiting in epochs:
        admission.learn(seconds, waiting)
    return admission.limit


def test_the_first_epoch_is_as_large_as_usual() -> None:
    assert after() == USUAL


def test_epochs_that_are_too_short_grow_while_rows_are_waiting() -> None:
    assert after((0.5, 1)) == 2 * USUAL


def test_an_epoch_that_took_everything_says_nothing() -> None:
    assert after((0.01, 0)) == USUAL
    assert after((0.5, 1), (30.0, 0)) == 2 * USUAL


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 0.1])
def test_there_is_a_most(seconds: float) -> None:
    assert after(*[(seconds, 1)] * 20) == MOST


def test_long_epochs_shrink_to_the_usual_and_no_further() -> None:
    assert after((0.25, 1), (2.0, 1)) == MOST // 2
    assert after((0.25, 1), (100.0, 1)) == USUAL
    assert after((100.0, 1)) == USUAL


@pytest.mark.parametrize("bound", [1, 3, 50_000_000])
def test_what_somebody_said_stays(bound: int) -> None:
    assert after((0.01, 1), (100.0, 1), bound=bound) == bound
