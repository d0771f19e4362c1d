"""Whose turn it is, as pure decisions; and a model of many replicas that die, pause and wake up, in which every epoch is published once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest

from springtide.connectors import Slice, Take
from springtide.runtime.replicas.cuts import Cut, digest_of, own, shared
from springtide.runtime.replicas.turns import (
    EpochDone,
    Turn,
    TurnChoice,
    choose_turn,
    difference,
    digests_of,
    term_after,
)
from springtide.state.manifest import Delivery, SourceState
from springtide.state.published import Published
from tests.wording import says


def turn(epoch: int = 7, number: int = 1, term: int = 3, by: str = "a", token: str = "one") -> Turn:
    return Turn(epoch, number, term, by, token, {"out": (2, "0f")}, {"out": "abc"})


def decide(*turns: Turn, done: bool = False, first: bool = False, waited: float = 0.0) -> TurnChoice:
    return choose_turn(done=done, turns=turns, name="b", token="two", first=first, waited=waited, grace=0.1, after=1.0)


def test_what_is_done_is_left_alone() -> None:
    assert decide(turn(), done=True) is TurnChoice.SKIP


def test_the_first_to_finish_takes_the_turn_and_the_last_publisher_goes_first_by_a_moment() -> None:
    assert decide(first=True) is TurnChoice.TAKE
    assert decide(waited=0.05) is TurnChoice.WAIT
    assert decide(waited=0.1) is TurnChoice.TAKE


def test_a_turn_of_another_is_taken_when_it_takes_too_long_and_each_further_one_has_twice_as_long() -> None:
    assert decide(turn(), waited=0.9) is TurnChoice.WAIT
    assert decide(turn(), waited=1.0) is TurnChoice.TAKE
    assert decide(turn(), turn(number=2, by="c"), waited=1.9) is TurnChoice.WAIT
    assert decide(turn(), turn(number=2, by="c"), waited=2.0) is TurnChoice.TAKE


def test_what_an_earlier_run_of_the_same_replica_began_is_finished_at_once() -> None:
    assert decide(turn(by="b", token="before")) is TurnChoice.TAKE


def test_a_term_is_new_unless_the_same_run_goes_on() -> None:
    assert term_after(None, "two") == 1
    assert term_after(turn(token="two"), "two") == 3
    assert term_after(turn(), "two") == 4


def test_digests_do_not_depend_on_instances() -> None:
    one = digests_of([Delivery("out", "f", 3, 0, "12")])
    two = digests_of([Delivery("out", "g", 1, 0, "2"), Delivery("out", "h", 2, 1, "10")])
    assert one == two == {"out": (3, "0000000000000012")}
    assert digests_of([Delivery("out", "f", 1, 0, "f" * 16), Delivery("out", "g", 1, 1, "2")])["out"][1] == f"{1:016x}"


def test_a_difference_names_the_sink_and_the_replicas() -> None:
    assert difference({"a": {}, "b": {}}) is None
    assert difference({"a": {"out": (1, "x")}, "b": {"out": (1, "x")}}) is None
    assert says(difference({"a": {"out": (1, "x")}, "b": {"out": (1, "y")}}), "sink out", "1 row", "not the same")
    assert says(difference({"a": {"out": (1, "x")}, "b": {}}), "sink out", "a has 1 row", "b 0")


def test_records_come_back_as_they_were() -> None:
    done = EpochDone(7, "a", {"out": (2, "0f")}, Published(7, frozenset({"out"}), {"out": ("files", ((7, "abc"),))}))
    assert Turn.decode(turn().encode()) == turn()
    assert EpochDone.decode(done.encode()) == done
    take = Take(
        (Slice("0", 5, 2, ["f", 1], 9, arrived=(1.0, 2.0)),), {"rows": 7}, {"0": 4}, ("0", "1"), True, 3, greatest=8
    )
    cut = Cut("before", "a", {"rows": {"": take}}, {("rows", "1"): 5})
    assert Cut.decode(cut.encode()) == cut


@pytest.mark.parametrize("data", [b"{}", b"[]", b"7", b"{", b'{"format": 2}', b'{"format": 1, "takes": 7}'])
def test_what_is_damaged_is_a_value_error(data: bytes) -> None:
    for kind in (Cut, Turn, EpochDone):
        with pytest.raises(ValueError, match=r"."):
            kind.decode(data)


def test_what_belongs_to_one_checkpoint_is_no_part_of_a_cut() -> None:
    here = {"ledger": {"files": [["state/files/a.json", 300, 1]], "recent": [["f", 1, 2, 3]], "read": 301}}
    there = {"ledger": {"files": [["state/files/b.json", 300, 2]], "recent": [["f", 1, 2, 3]], "read": 301}}
    assert shared(here) == shared(there)
    assert own(shared(here), there) == there
    assert digest_of({"s": SourceState(position=here)}) == digest_of({"s": SourceState(position=there)})
    assert digest_of({"s": SourceState(position=here)}) != digest_of({"s": SourceState(position=here, accepted=1)})


# ── a model ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Model:
    """A log and a sink that refuses whoever comes with an older term; replicas step by step, in any order."""

    turns: dict[tuple[int, int], Turn] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    term: int = 0
    published: list[int] = field(default_factory=list)
    time: float = 0.0

    def of(self, epoch: int) -> tuple[Turn, ...]:
        return tuple(t for (e, _), t in sorted(self.turns.items()) if e == epoch)

    def claim(self, term: int) -> bool:
        """Open the sink."""
        if term < self.term:
            return False
        self.term = term
        return True

    def write(self, term: int, epoch: int) -> bool:
        """Bring an epoch out, unless it is there."""
        if term != self.term:
            return False
        if epoch not in self.published:
            self.published.append(epoch)
        return True


def replica(model: Model, name: str, token: str, epochs: int) -> Iterator[None]:
    """One run: every `yield` is a place where it may be paused, for ever or for a while."""
    open_term, last = 0, None
    for epoch in range(epochs):
        changed, seen = model.time, ()
        while epoch not in model.done:
            yield
            turns = model.of(epoch)
            if turns != seen:
                seen, changed = turns, model.time
            first = last is not None and last.epoch == epoch - 1
            what = choose_turn(
                done=epoch in model.done, turns=turns, name=name, token=token, first=first,
                waited=model.time - changed, grace=0.1, after=1.0,
            )  # fmt: skip
            if what is not TurnChoice.TAKE:
                continue
            before = turns[-1] if turns else (model.of(epoch - 1) or (None,))[-1]
            yield
            mine = Turn(epoch, len(turns) + 1, term_after(before, token), name, token, {}, {})
            if (epoch, mine.number) in model.turns:
                continue
            model.turns[epoch, mine.number] = last = mine
            yield
            if (epoch, mine.number + 1) in model.turns or epoch in model.done:
                continue
            yield
            if open_term != mine.term:
                if not model.claim(mine.term):
                    continue
                open_term = mine.term
            yield
            if (epoch, mine.number + 1) in model.turns or epoch in model.done:
                continue
            yield
            if not model.write(mine.term, epoch):
                assert len(model.of(epoch)) > mine.number or epoch in model.done, (
                    "refused though nobody else has the turn"
                )
                continue
            yield
            model.done.add(epoch)


@pytest.mark.parametrize("seeds", [range(100), range(100, 200)], ids=["0-99", "100-199"])
def test_every_epoch_is_published_once_in_order(seeds: range) -> None:
    for seed in seeds:
        random, model, epochs = Random(seed), Model(), 6
        names = "abc"[: random.randint(1, 3)]
        runs = [replica(model, name, name, epochs) for name in names]
        for n in range(5_000):
            model.time += random.choice([0.0, 0.01, 0.5])
            if len(runs) > 1 and random.random() < 0.005:
                runs.remove(random.choice(runs))
            if random.random() < 0.005:
                name = random.choice("abc")
                runs.append(replica(model, name, f"{name}{n}", epochs))
            run = random.choice(runs)
            if next(run, "over") == "over":
                runs.remove(run)
            if not runs:
                break
        for _ in replica(model, "z", "z", epochs):
            model.time += 1
        assert model.published == list(range(epochs)), (seed, model)
