"""Manifests: the commit record of an epoch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from springtide.query.types import END_OF_TIME
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Refusal
from springtide.state.manager_state import ManagerState
from springtide.state.manifest import FORMAT, Delivery, InputState, Manifest, SourceState, SubqueryState
from springtide.state.metrics import EpochMetrics, SubqueryMetrics
from springtide.state.segment import Segment

SEGMENT = Segment(
    "state/agg/1.arrow", "panes", epoch=1, instance=0, version=0, rows=10, bytes=100, low=-5, high=END_OF_TIME
)
FULL = Manifest(
    epoch=7,
    generation=3,
    sources={
        "calls": SourceState({"file": "ä.csv", "row": 5}, {"0": 17, "1": END_OF_TIME}, False, 100, 2, 3),
        "accounts": SourceState(None, {}, True, attached={"": InputState(ended=True), "b": InputState({"row": 2})}),
    },
    maps={"agg": BucketMap(2, 3, (0, 1, 2, 0)), "new": BucketMap(0, 1, (0, 0, 0, 0))},
    state={"agg": SubqueryState({"window": -4}, (SEGMENT,)), "new": SubqueryState()},
    outbox=(Delivery("out", "outbox/7/a.parquet", 5, 1),),
    metrics=EpochMetrics(1.5, 0.25, 7, 5, 0, {"agg": SubqueryMetrics(busy=(0.1, 0.2))}, events=((1.0, "scaled"),)),
    elastic=ManagerState(
        paused=True, changed={"agg": 1.5}, refusals=(Refusal(1.0, 6, "agg", "limit", "9", "too many"),)
    ),
    ended=True,
)


def altered(change: Any) -> bytes:
    data = json.loads(FULL.encode())
    change(data)
    return json.dumps(data).encode()


@pytest.mark.parametrize("manifest", [FULL, Manifest(epoch=0, generation=1)])
def test_it_comes_back(manifest: Manifest) -> None:
    assert Manifest.decode(manifest.encode()) == manifest


def test_it_is_the_same_bytes_every_time() -> None:
    assert FULL.encode() == Manifest.decode(FULL.encode()).encode()


def test_it_names_its_segments() -> None:
    assert FULL.files() == {"state/agg/1.arrow"}
    assert Manifest(epoch=0, generation=1).files() == set()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["body"].update(epoch=8),
        lambda d: d["body"]["sources"]["calls"].update(accepted=101),
        lambda d: d["body"]["state"]["agg"]["segments"].clear(),
        lambda d: d.update(crc=d["crc"] + 1),
    ],
)
def test_a_changed_body_is_noticed(change: Any) -> None:
    with pytest.raises(ValueError, match="checksum does not match"):
        Manifest.decode(altered(change))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"{}", FULL.encode()[:-20], b"\x00" * 100])
def test_what_is_no_manifest(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Manifest.decode(data)


def test_a_newer_format_is_told_before_anything_else() -> None:
    data = altered(lambda d: (d.update(format=FORMAT + 1), d.pop("crc"), d.pop("body")))
    with pytest.raises(ValueError, match="format 2, but this version of Springtide reads 1"):
        Manifest.decode(data)


def test_buckets_are_shared_out_in_turn() -> None:
    bucket_map = BucketMap.even(7, 3, version=4)
    assert bucket_map == BucketMap(4, 3, (0, 1, 2, 0, 1, 2, 0))
    assert [bucket_map.buckets_of(i) for i in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
    assert BucketMap.even(0, 2).buckets_of(1) == []
