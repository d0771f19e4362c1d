"""The topologies of AUTOSCALE's evaluation (AS-7): linear, diamond, star, advertising.

Intermediate operators take 2 ms per row and those at the end 80 ms, as in its table III. The source only reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from springtide.elastic.simulator.model import Model, ModelStep

READ, QUICK, SLOW = 0.0005, 0.002, 0.08


def linear() -> Model:
    """One after another."""
    return Model(
        {
            "source": ModelStep(READ, buckets=None),
            "intermediate": ModelStep(QUICK, ("source",)),
            "sink": ModelStep(SLOW, ("intermediate",)),
        }
    )


def diamond() -> Model:
    """Two paths from the source to the end; half of the rows take each."""
    return Model(
        {
            "source": ModelStep(READ, buckets=None),
            "left": ModelStep(QUICK, ("source",), takes=0.5),
            "right": ModelStep(QUICK, ("source",), takes=0.5),
            "sink": ModelStep(SLOW, ("left", "right")),
        }
    )


def star() -> Model:
    """Two inputs that come together and part again, to two ends."""
    return Model(
        {
            "source-1": ModelStep(READ, takes=0.5, buckets=None),
            "source-2": ModelStep(READ, takes=0.5, buckets=None),
            "middle": ModelStep(QUICK, ("source-1", "source-2")),
            "sink-1": ModelStep(SLOW, ("middle",), takes=0.5),
            "sink-2": ModelStep(SLOW, ("middle",), takes=0.5),
        }
    )


def advertising() -> Model:
    """The advertising benchmark with two paths, fig. 11: a filter lets a third of the events through (a view, a click, a purchase)."""
    return Model(
        {
            "deserialize": ModelStep(QUICK, buckets=None),
            "filter": ModelStep(READ, ("deserialize",), selectivity=1 / 3),
            "ip-projection": ModelStep(READ, ("filter",)),
            "ad-projection": ModelStep(READ, ("filter",)),
            "join": ModelStep(QUICK, ("ad-projection",)),
            "ip-processor": ModelStep(SLOW, ("ip-projection",)),
            "campaign-processor": ModelStep(SLOW, ("join",)),
        }
    )


TOPOLOGIES: Mapping[str, Model] = {
    "linear": linear(),
    "diamond": diamond(),
    "star": star(),
    "advertising": advertising(),
}
