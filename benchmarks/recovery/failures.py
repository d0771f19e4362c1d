"""`recovery` (SE-7, fig. 11): the executor of a word counter is killed and its state is gone; how soon is it whole again?

A standalone cluster of two executors on the loopback, the counter at one instance. The executor that ran it last gets SIGKILL, and everything that is in
the shared memory is removed: all state of the counter that was not made durable. Three ways to have it back:

    sm   state management    the last checkpoint (every 5 s), and the epochs since are done again; killed 2.5 s after a checkpoint
    ub   upstream backup     no checkpoint: the splitter kept all that it ever sent, and sends it again
    sr   source replay       no checkpoint: all fragments are read from the source again, and split again

At the kill the stream is 30 s old, which is the window, so that upstream backup and source replay send nothing that a trim would have removed. All but
the last seconds of it come at once when the run begins, which is in favour of upstream backup: the splitter combined their counts in one epoch instead of many.
Seconds are from the kill to the moment when the state is whole again, Spark's notice of the lost executor among them; `served` is to the end of the first
epoch behind it. Rows are compared with counts of the benchmark's own.
"""

import functools
import os
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import springtide as st
from benchmarks.elastic.standalone import ROOT, SETTINGS, executors_of, standalone
from benchmarks.measure import result, say, scratch, summary
from benchmarks.pictures import picture
from benchmarks.recovery import words
from springtide.charts import COLOURS
from springtide.state.checkpoint import Checkpoint
from springtide.state.private import shared_memory

RATES = (5_000, 10_000, 20_000)
"""Fragments in a second."""
DICTIONARY = 100_000
INTERVAL = 5.0
LIVE = {"sm": 1.5 * INTERVAL, "ub": 3.0, "sr": 3.0}
"""Seconds from the start of a run to the kill."""
WAYS = {
    "sm": st.Durability(every="5s"),
    "ub": st.Durability(every="never", buffer=True),
    "sr": st.Durability(every="never"),
}
NAMES = {"sm": "state management", "ub": "upstream backup", "sr": "source replay"}


def main(repeats: str = "3") -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    path = {"spark_executorEnv_PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    found: dict[str, dict[int, list[float]]] = {way: {rate: [] for rate in RATES} for way in WAYS}
    served: dict[str, dict[int, list[float]]] = {way: {rate: [] for rate in RATES} for way in WAYS}
    compared = wrong = 0
    with scratch() as folder, standalone(folder / "cluster", workers=2, cores=1) as master:
        say("starting Spark")
        spark = st.spark_session(master, **SETTINGS | path)
        for i in range(int(repeats)):
            for rate in RATES:
                for way in WAYS:
                    place = folder / f"{way}-{rate}-{i}"
                    whole, committed = _fail(spark, place, way, rate)
                    found[way][rate].append(whole)
                    served[way][rate].append(committed)
                    bad, rows = words.wrong(place / "out", rate, DICTIONARY)
                    wrong, compared = wrong + bad, compared + rows
                    say(f"{rate:,}/s, {NAMES[way]}: whole after {whole:.2f} s, {bad} of {rows:,} rows wrong")
                    shutil.rmtree(place)
        spark.stop()
    medians = {way: {rate: statistics.median(s) for rate, s in rates.items()} for way, rates in found.items()}
    _draw(found)
    result(
        "recovery",
        **{f"{way}_s": {str(rate): round(s, 3) for rate, s in rates.items()} for way, rates in medians.items()},
        sm_fastest=all(medians["sm"][r] < min(medians["ub"][r], medians["sr"][r]) for r in RATES),
        wrong_rows=wrong,
        rows_compared=compared,
        spread={way: {str(rate): summary(s) for rate, s in rates.items()} for way, rates in found.items()},
        served={way: {str(rate): summary(s) for rate, s in rates.items()} for way, rates in served.items()},
    )


def _fail(spark: Any, folder: Path, way: str, rate: int) -> tuple[float, float]:
    """Run the query, kill, and give the seconds until the state is whole again and until the first epoch behind that."""
    application = spark.sparkContext.applicationId
    until(None, lambda: len(executors_of(application)) == 2, 60)
    source = words.fragments(rate, DICTIONARY, ahead=words.WINDOW - LIVE[way])
    began = time.monotonic()
    ckpt = folder / "checkpoint"
    run = words.frequencies(source, folder / "out").start(
        spark, checkpoint=ckpt, instances=1, durability=replace(WAYS[way], shared_memory=shared_memory())
    )
    until(run, functools.partial(_caught_up, run, rate))
    if way == "sm":
        durable = files(ckpt)
        until(run, lambda: files(ckpt) - durable)
        time.sleep(INTERVAL / 2)
    else:
        time.sleep(max(0.0, began + LIVE[way] - time.monotonic()))
    victim = _executor_of_the_last_task(spark)
    killed = time.time()
    next(e for e in executors_of(application) if e.cmdline()[e.cmdline().index("--executor-id") + 1] == victim).kill()
    lose(ckpt)
    whole = whole_again(run, killed)
    until(run, lambda: run.metrics()[-1]["at"] > killed + whole)
    committed = next(m["at"] for m in run.metrics() if m["at"] > killed + whole) - killed
    run.stop()
    return whole, committed


def _caught_up(run: Any, rate: int) -> bool:
    epochs = run.metrics()
    return bool(epochs) and len(epochs) > 3 and epochs[-1]["rows"] < 2 * rate


def _executor_of_the_last_task(spark: Any) -> str:
    """Ask Spark where the last task of the last job ran: that is the counter's."""
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    stage = max(int(s) for s in jobs.head().stageIds().mkString(",").split(","))
    for number in range(stage, -1, -1):  # the last one may not have begun
        tasks = store.taskList(number, 0, 1)
        if tasks.nonEmpty():
            return str(tasks.head().executorId())
    raise LookupError("no task has run yet")


# ── for the other benchmarks too ──────────────────────────────────────────────────────────────────────────────────────


def until(run: Any, condition: Callable[[], Any], seconds: float = 120) -> None:
    """Wait for something to happen while a run is active."""
    end = time.monotonic() + seconds
    while not condition():
        if (run is not None and not run.active) or time.monotonic() > end:
            if run is not None:
                run.wait(0)  # raises what went wrong
            raise TimeoutError(f"it did not happen in time: {run.events() if run is not None else ''}")
        time.sleep(0.01)


def files(checkpoint: Path) -> frozenset[str]:
    """Name the segments that are durable."""
    return frozenset(f.name for f in (checkpoint / "state").rglob("*.arrow"))


def lose(checkpoint: Path) -> None:
    """Remove all state that is not durable, at once."""
    newest = Checkpoint(checkpoint).latest()
    assert newest is not None
    assert newest.log is not None
    memory = Path(newest.log["memory"])
    gone = (memory / "state").rename(memory / "gone")  # tasks are at work in it
    shutil.rmtree(gone)


def whole_again(run: Any, lost: float) -> float:
    """Wait until state that was lost at a time is whole again; give the seconds."""

    def events() -> list[float]:
        return [at for at, text in run.events() if at > lost and "is whole again" in text]

    until(run, events)
    return events()[0] - lost


def _draw(found: dict[str, dict[int, list[float]]]) -> None:
    with picture("recovery", (1.6,), title="seconds until lost state is whole again (window 30 s, c = 5 s)") as (axes,):
        for i, (way, rates) in enumerate(found.items()):
            places = [n + (i - 1) * 0.27 for n in range(len(rates))]
            heights = [statistics.median(s) for s in rates.values()]
            errors = [[h - min(s), max(s) - h] for h, s in zip(heights, rates.values(), strict=True)]
            axes.bar(places, heights, 0.25, yerr=list(zip(*errors, strict=True)), color=COLOURS[i], label=NAMES[way])
        axes.set_xticks(range(len(RATES)), [f"{rate:,} fragments/s" for rate in RATES])
        axes.set(ylabel="seconds", ylim=(0, None))
