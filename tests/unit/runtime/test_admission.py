"""How many rows an epoch takes: more while epochs are short and rows are waiting, never more than there is room for."""

import pytest

from springtide.runtime.admission import MOST, USUAL, Admission


def after(*epochs: tuple[float, int], bound: int | None = None) -> int:
    """Return the limit after epochs of so many seconds, with so many rows waiting, that took as many as they could."""
    admission = Admission(bound)
    for seconds, waiting in epochs:
        admission.learn(seconds, admission.limit, waiting)
    return admission.limit


def test_the_first_epoch_is_as_large_as_usual() -> None:
    assert after() == USUAL


def test_epochs_that_are_too_short_grow_while_rows_are_waiting() -> None:
    assert after((0.5, 1)) == 2 * USUAL


def test_an_epoch_is_at_most_twice_as_large_as_the_one_before() -> None:
    assert [after(*[(0.01, 1)] * n) for n in (1, 2, 3)] == [2 * USUAL, 4 * USUAL, MOST]


def test_the_next_burst_begins_with_the_usual() -> None:
    assert after((0.01, 0)) == USUAL
    assert after((0.5, 1), (30.0, 0)) == after((0.5, 1), (0.01, 0)) == USUAL


def test_an_epoch_that_did_not_take_all_that_it_could_says_nothing_of_a_large_one() -> None:
    admission = Admission()
    admission.learn(0.01, 3, waiting=1_000_000)
    assert admission.limit == USUAL


def test_what_is_forgotten_is_only_what_was_found() -> None:
    admission = Admission()
    assert not admission.forget()
    admission.learn(0.01, USUAL, waiting=1)
    assert admission.forget()
    assert admission.limit == USUAL
    assert not Admission(50_000_000).forget()


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 0.1])
def test_there_is_a_most(seconds: float) -> None:
    assert after(*[(seconds, 1)] * 20) == MOST


def test_long_epochs_shrink_to_the_usual_and_no_further() -> None:
    assert after((0.25, 1), (0.25, 1), (2.0, 1)) == MOST // 2
    assert after((0.25, 1), (0.25, 1), (100.0, 1)) == USUAL
    assert after((100.0, 1)) == USUAL


@pytest.mark.parametrize("bound", [1, 3, 50_000_000])
def test_what_somebody_said_stays(bound: int) -> None:
    assert after((0.01, 1), (100.0, 1), bound=bound) == bound
