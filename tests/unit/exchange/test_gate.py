"""The gate: times of physical streams come together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from springtide.exchange.gate import BEGINNING, later, merged_time
from springtide.query.types import END_OF_TIME

times = some.dictionaries(
    some.sampled_from("ab"), some.dictionaries(some.sampled_from("01"), some.integers(BEGINNING, END_OF_TIME))
)


def test_the_latest_time_of_each_stream_is_known() -> None:
    before = {"a": {"0": 5, "1": 7}}
    assert later(before, [{"a": {"0": 6, "1": 3}}, {"b": {"0": 1}}]) == {"a": {"0": 6, "1": 7}, "b": {"0": 1}}
    assert before == {"a": {"0": 5, "1": 7}}


def test_nothing_new() -> None:
    assert later({}, []) == {}
    assert later({"a": {"0": 5}}, [{}, {"a": {}}]) == {"a": {"0": 5}}


@given(times, some.lists(times, max_size=3), some.randoms())
def test_the_order_in_which_senders_are_heard_makes_no_difference(before, news, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = [*news]
    random.shuffle(shuffled)
    assert later(before, news) == later(before, shuffled)
    assert later(later(before, news), news) == later(before, news)


def test_the_merged_time_is_the_smallest() -> None:
    known = {"a": {"0": 5, "1": 7}, "b": {"0": 6}}
    assert merged_time(known, ["a"]) == 5
    assert merged_time(known, ["b"]) == 6
    assert merged_time(known, ["a", "b"]) == 5
    assert merged_time({"a": {"0": END_OF_TIME}, "b": {"0": 6}}, ["a", "b"]) == 6
    assert merged_time({"a": {"0": END_OF_TIME}}, ["a"]) == END_OF_TIME


def test_a_source_of_which_nothing_is_known_holds_all_back() -> None:
    assert merged_time({"a": {"0": 5}}, ["a", "b"]) == BEGINNING
    assert merged_time({"a": {"0": 5}, "b": {}}, ["a", "b"]) == BEGINNING
    assert merged_time({}, []) == BEGINNING
    assert merged_time({"a": {"0": 5, "1": BEGINNING}}, ["a"]) == BEGINNING


@given(times, times)
def test_it_never_goes_back(before, news) -> None:  # type: ignore[no-untyped-def]
    for sources in (["a"], ["b"], ["a", "b"]):
        known = all(before.get(s) for s in sources) and all(set(news.get(s, {})) <= set(before[s]) for s in sources)
        if known:  # a stream that is new may hold the others back
            assert merged_time(later(before, [news]), sources) >= merged_time(before, sources)
