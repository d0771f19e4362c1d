"""What is said of a run, from its manifests."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from springtide.cli.live_view import LiveView, draw, latency, longest
from springtide.cli.plain_view import PlainView
from springtide.cli.progress import Progress, Tracker
from springtide.elastic.decisions import decisions_of
from springtide.elastic.instructions import instruct
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.snapshot import Latency, Snapshot, SourceLoad, SubqueryLoad
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Trigger
from springtide.state.manifest import Manifest, SourceState, SubqueryState
from springtide.state.metrics import EpochMetrics, SubqueryMetrics
from springtide.state.segment import Segment


def manifest(epoch: int, at: float, took: float = 0.5, rows: int = 1_000, backlog: int = 0, late: int = 0) -> Manifest:
    segment = Segment("state/x", "panes", epoch=epoch, instance=0, version=0, rows=70, bytes=7_000, low=0, high=1)
    return Manifest(
        epoch=epoch,
        generation=1,
        sources={"calls": SourceState(accepted=rows * (epoch + 1), late=late)},
        maps={"calls": BucketMap(0, 2, ()), "heavy": BucketMap(0, 2, (0, 1))},
        state={"heavy": SubqueryState({"window": 3}, (segment, segment))},
        metrics=EpochMetrics(
            at,
            took,
            rows,
            rows // 10,
            backlog,
            {
                "calls": SubqueryMetrics((rows, 0), (50, 0), busy=(0.4, 0.0)),
                "heavy": SubqueryMetrics((25, 25), (rows // 10, 0), busy=(0.1, 0.3)),
            },
        ),
    )


# One epoch per second, each half a second long.
#
#   100   101   102   103
#   │  ▇▇▇│  ▇▇▇│  ▇▇▇│


def progress(epochs: int = 3, *, before: Manifest | None = None, now: float | None = None, **more: int) -> Progress:
    tracker = Tracker(before)
    first = 0 if before is None else before.epoch + 1
    manifests = [manifest(first + i, 101.0 + i, **more) for i in range(epochs)]
    for upto in range(epochs + 1):
        tracker.add(manifests[:upto])  # the same manifests come again and again
    return tracker.progress(100.0 + epochs if now is None else now)


def test_totals_and_rates() -> None:
    r = progress()
    assert (r.epoch, r.epochs, r.rows_in, r.rows_out) == (2, 3, 3_000, 300)
    assert r.rate_in == pytest.approx(3_000 / 2.5)  # from the begin of the first epoch to the end of the last
    assert (r.last, r.median) == (0.5, 0.5)


def test_rates_look_back_a_few_seconds_only() -> None:
    tracker = Tracker(None)
    tracker.add(manifest(i, 101.0 + i, rows=1_000 if i < 10 else 3_000) for i in range(20))
    assert tracker.progress(120.0).rate_in == pytest.approx(3_000)


def test_bars_share_rows_out_over_time() -> None:
    tracker = Tracker(None)
    tracker.add([manifest(0, 100.0), manifest(1, 103.0, rows=3_000), manifest(2, 106.5, rows=7_000)])
    # 1,000 rows come up to 100.0; 1,000 a second up to 103.0; 2,000 a second up to 106.5: the last bar is not whole
    assert tracker.progress(106.5).rates == pytest.approx((500, 1_000, 1_500, 2_000))
    tracker.add(manifest(i, 100.0 + i) for i in range(7, 300))
    assert tracker.progress(399.0).rates == pytest.approx((1_000,) * 30)


def test_rates_go_down_in_a_pause() -> None:
    assert progress(now=103.2).rate_in == progress(now=103.0).rate_in  # an epoch is at work
    assert progress(now=200.0).rate_in is None


def test_latency_is_from_the_begin_of_the_epoch_before() -> None:
    r = progress()
    assert r.latency == pytest.approx(1.5)
    assert longest(r) == r.latency
    behind = progress(backlog=2_400)
    assert longest(behind) == pytest.approx(1.5 + 2.0)
    assert latency(behind) == "latency ≤ 3.50 s"


def test_state_and_rates_of_a_part() -> None:
    calls, heavy = progress().parts
    assert (heavy.name, heavy.instances, heavy.state_rows, heavy.state_bytes) == ("heavy", 2, 140, 14_000)
    assert (heavy.utilisation, heavy.highest) == (None, None)  # nobody measured it
    assert (calls.rate_in, calls.state_rows) == (pytest.approx(1_200), 0)


def snapshot(epoch: int, at: float) -> Snapshot:
    """The stage of `heavy` takes three quarters of the time."""
    calls = SubqueryLoad(BucketMap(0, 2, ()), (1_000, 0), (50, 0), (0.1, 0.0), span=0.1, sources=("calls",))
    heavy = SubqueryLoad(BucketMap(0, 2, (0, 1)), (25, 25), (100, 0), (0.1, 0.3), span=0.3, upstream=("calls",))
    sources = {"calls": SourceLoad(1_000, 1_000, 0)}
    return Snapshot(at, epoch, 0.5, 1.0, sources, {"calls": calls, "heavy": heavy}, Latency(0.4, 0.8, 0.9))


def measured() -> Progress:
    tracker = Tracker(None)
    for i in range(3):
        tracker.add([manifest(i, 101.0 + i)], snapshot(i, 101.0 + i))
    return tracker.progress(103.0)


def test_utilisation_is_what_policies_see() -> None:
    calls, heavy = measured().parts
    assert heavy.utilisation == pytest.approx((0.1 + 0.3) / 2 / 0.75)
    assert heavy.highest == pytest.approx(0.3 / 0.75)
    assert calls.utilisation == pytest.approx(0.1 / 2 / 0.25)


def test_latency_that_was_measured() -> None:
    r = measured()
    assert r.waits == Latency(0.4, 0.8, 0.9)
    assert latency(r) == "latency 0.40 s, p95 0.80 s"


def test_instances_change() -> None:
    tracker = Tracker(None)
    for i, instances in enumerate([1, 1, 3, 3, 3, 2]):
        made = manifest(i, 100.0 + 2 * i if i < 5 else 115.0)
        tracker.add([replace(made, maps=made.maps | {"heavy": BucketMap(i, instances, (0, 0))})])
    calls, heavy = tracker.progress(115.0).parts
    assert heavy.instances == 2
    assert heavy.trend == (1, 1, 3, 3, 3, 3, 3, 2)  # bars in which no epoch ended are as the one before
    assert set(calls.trend) == {2}
    tracker.add(manifest(i, 100.0 + 2 * i) for i in range(10, 100))
    assert tracker.progress(300.0).parts[1].trend == (2,) * 12


def test_only_this_run_is_counted() -> None:
    r = progress(before=manifest(9, 50.0, late=4), late=7)
    assert (r.epoch, r.epochs, r.rows_in, r.late, r.rejected) == (12, 3, 3_000, 3, 0)


def test_nothing_to_say_before_the_first_epoch() -> None:
    r = progress(0)
    assert (r.epoch, r.rate_in, r.last, r.latency, r.parts) == (-1, None, None, None, ())


def drawn(r: Progress, width: int = 80) -> str:
    console = Console(width=width, file=StringIO(), record=True)
    told = instruct(
        Proposal("heavy", "it is busy", Trigger("deviation of utilisation", 0.97, 0.9), instances=3),
        BucketMap.even(8, 2),
        time=0.0,
        epoch=7,
    )
    assert told is not None
    decided = {"id": "a", "at": 0.0} | told.to_json()
    done = {"id": "a", "done": 1.0, "in_epoch": 8, "seconds": 0.5, "extra_seconds": 0.031, "bytes_moved": 9}
    decisions = decisions_of([decided, done, decided | {"id": "b"}])
    events = [(0.0, told.as_event()), (1.0, "elasticity is paused")]
    console.print(draw("heavy-callers", r, events, decisions, 75.0, [("output", "parquet out")], "Ctrl-C"))
    return console.export_text()


def test_live_view_fits_a_small_terminal() -> None:
    shown = drawn(progress(late=3, backlog=5_000))
    assert max(map(len, shown.splitlines())) <= 80
    for text in (
        "heavy-callers   1:15   epoch 2",
        "1.20 k/s",
        "3,000",
        "late 3",
        "backlog 5,000",
        "14 kB",
        "latency ≤",
        "elasticity is paused",
    ):
        assert text in shown
    assert "scaled heavy" not in shown  # it is among the decisions
    first, second = [line.split() for line in shown.splitlines() if "→" in line]
    assert first[1:9] == ["heavy", "2", "→", "3", "instances", "deviation", "of", "utilisation"]
    assert (first[-2:], second[-1]) == (["+31", "ms"], "…")
    heavy = next(line for line in drawn(measured()).splitlines() if line.startswith("heavy "))
    assert "27%" in heavy


def test_live_view_before_the_first_epoch() -> None:
    assert "waiting for the first epoch" in drawn(progress(0))


def test_live_view_goes_away() -> None:
    console = Console(width=80, file=StringIO(), force_terminal=True)
    with LiveView(console, "q", [], "Ctrl-C stops") as view:
        view.show(progress(), [], [], 1.0, stopping=False)
        view.show(progress(), [], [], 1.0, stopping=True)
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Ctrl-C again ends at once" in written
    assert written.endswith("\x1b[?25h") or "\x1b[?25h" in written  # the cursor is back


def lines(*shows: tuple[int, float, bool]) -> list[str]:
    console = Console(width=80, file=StringIO())
    events: list[tuple[float, str]] = []
    with PlainView(console) as view:
        for epochs, elapsed, stopping in shows:
            view.show(progress(epochs), events, [], elapsed, stopping=stopping)
            events = [(5.0, "scaled heavy: 1 → 2 instances")]
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def test_plain_lines_come_once_a_second_at_most() -> None:
    shown = lines((0, 0.0, False), (1, 0.2, False), (2, 0.4, False), (2, 1.0, False), (3, 1.3, False), (3, 9.9, False))
    event, first, second = shown
    assert event.endswith("  scaled heavy: 1 → 2 instances")
    assert first.split("  ")[:3] == ["0.20 s", "epoch 0", "in 1,000 (2 k/s)"]
    assert second.split("  ")[:2] == ["1.30 s", "epoch 2"]


def test_plain_line_says_only_what_is_worth_it() -> None:
    assert " late " not in lines((1, 0.0, False))[0]
    assert lines((0, 0.0, True), (0, 0.1, True))[0] == "stopping after the current epoch"
