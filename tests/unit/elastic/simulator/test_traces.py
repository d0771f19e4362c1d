"""Traces: figs. 7 and 8 of AUTOSCALE (AS-7), the sine of SM-10, the ramp of SC-10, and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from springtide.elastic.simulator.traces import SHAPES, read, trace


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_reach_their_peak_and_are_never_negative(name: str) -> None:
    plain, noisy = trace(name, 500, noise=0), trace(name, 500, seed=1)
    assert plain.peak == pytest.approx(500)
    assert plain.rates.min() > 0
    assert noisy.rates.shape == plain.rates.shape
    assert np.std(noisy.rates / plain.rates) == pytest.approx(0.03, abs=0.012)
    assert (trace(name, 500, seed=1).rates == noisy.rates).all()
    assert (trace(name, 500, seed=2).rates != noisy.rates).any()


def test_sm10_load_triples() -> None:
    rates = trace("sine", noise=0).rates
    assert rates.max() / rates.min() == pytest.approx(3)


def test_sc10_ramp_goes_from_1_to_27() -> None:
    rates = trace("ramp", 27, noise=0).rates
    assert (rates[0], rates[1530]) == pytest.approx((1, 27))


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_text("time,rate\n0,100\n10,200\n20,200\n")
    found = read(path)
    assert (found.name, found.seconds) == ("load", 20)
    assert found.rates[[0, 5, 15]].tolist() == [100, 150, 200]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("seconds,rows\n1,2\n", "needs time and rate"),
        ("time,rate\n1,2\n", "two lines"),
        ("time,rate\n1,x\n2,3\n", "could not convert"),
        ("time,rate\n1,-5\n2,3\n", "negative"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "load.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=why):
        read(path)


def test_a_trace_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="there is no trace 'flood'; there are 3-step"):
        trace("flood")
