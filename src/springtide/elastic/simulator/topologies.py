"""The topologies of AUTOSCALE's evaluation (AS-7): linear, diamond, star, advertising.

Intermediate operators take 2 ms per row and those at the end 80 ms, as in its table III. The source only reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from springtide.elastic.simulator.model import Model, Step

READ, QUICK, SLOW = 0.0005, 0.002, 0.08


def linear() -> Model:
    """One after another."""
    return Model(
        {
            "source": Step(READ, buckets=None),
            "intermediate": Step(QUICK, ("source",)),
            "sink": Step(SLOW, ("intermediate",)),
        }
    )


def diamond() -> Model:
    """Two paths from the source to the end; half of the rows take each."""
    return Model(
        {
            "source": Step(READ, buckets=None),
            "left": Step(QUICK, ("source",), takes=0.5),
            "right": Step(QUICK, ("source",), takes=0.5),
            "sink": Step(SLOW, ("left", "right")),
        }
    )


def star() -> Model:
    """Two inputs that come together and part again, to two ends."""
    return Model(
        {
            "source-1": Step(READ, takes=0.5, buckets=None),
            "source-2": Step(READ, takes=0.5, buckets=None),
            "middle": Step(QUICK, ("source-1", "source-2")),
            "sink-1": Step(SLOW, ("middle",), takes=0.5),
            "sink-2": Step(SLOW, ("middle",), takes=0.5),
        }
    )


def advertising() -> Model:
    """The advertising benchmark with two paths, fig. 11: a filter lets a third of the events through (a view, a click, a purchase)."""
    return Model(
        {
            "deserialize": Step(QUICK, buckets=None),
            "filter": Step(READ, ("deserialize",), selectivity=1 / 3),
            "ip-projection": Step(READ, ("filter",)),
            "ad-projection": Step(READ, ("filter",)),
            "join": Step(QUICK, ("ad-projection",)),
            "ip-processor": Step(SLOW, ("ip-projection",)),
            "campaign-processor": Step(SLOW, ("join",)),
        }
    )


TOPOLOGIES: Mapping[str, Model] = {
    "linear": linear(),
    "diamond": diamond(),
    "star": star(),
    "advertising": advertising(),
}
