"""The executors of a Spark cluster: standalone, YARN, Kubernetes.

These are the calls that Spark's own dynamic allocation makes, on the same scheduler back end; each cluster manager implements
them in its own way. Four facts about Spark (4.0 to 4.3) determine how they are used:

- `requestTotalExecutors` states a target. It never kills executors, and those that die are replaced up to the target.
- Killing changes the target unless told not to, and before a first request it would set it to 0. So the target is stated first,
  and killing leaves it alone.
- A new executor has no Python process yet. Its first tasks would have to start one and import everything while the query waits,
  which takes many times as long as an epoch. So executors only count once their workers have started.
- With dynamic allocation there would be two masters. Then Spark is in charge: nothing is requested or released here, and more
  instances lead to more waiting tasks, which makes Spark request executors.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from springtide.elastic.resources.local import LocalSlots
from springtide.elastic.resources.resources import Resources
from springtide.elastic.resources.sizing import Executors, leaving

if TYPE_CHECKING:
    from pyspark import SparkContext

_RELEASED_WITHIN = 2.0
"""Seconds that an epoch waits for executors to be released. Killed while its tasks run, they might take shuffle files with them, which
would have to be made again; but a cluster manager that does not answer must not hold up the query."""

_SOON, _LATER = 0.1, 1.0
"""Seconds between two checks for new executors: while some are expected, and otherwise."""

_claims: defaultdict[str, dict[int, int]] = defaultdict(dict)
"""Application → query → slots: requests are made for all queries of a session together."""


def resources_of(
    context: SparkContext, wanted: Executors | None, warm_up: Callable[[int], Callable[[], bool]]
) -> Resources:
    """Find out what a Spark context runs on. Executors are left alone unless `wanted` is given.

    `warm_up` starts this many tasks that do nothing but start a worker, and returns a function that tells whether they are done.
    """
    java: Any = context._jsc.sc()
    if java.isLocal():
        return LocalSlots(int(java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile())))
    return SparkExecutors(context, wanted, warm_up)


class SparkExecutors:
    """The executors of one Spark application, as one of its queries sees them."""

    def __init__(
        self, context: SparkContext, wanted: Executors | None, warm_up: Callable[[int], Callable[[], bool]]
    ) -> None:
        """Only look around; nothing is requested before `request`."""
        self._jvm: Any = context._jvm
        self._java: Any = context._jsc.sc()
        self._wanted: Executors | None = None
        self._warm_up = warm_up
        self._profile = self._java.resourceProfileManager().defaultResourceProfile()
        self._decommission = context.getConf().get("spark.decommission.enabled", "false") == "true"
        self._each = _slots_of_each(context)
        self._claimed = _claims[context.applicationId]
        self._target: int | None = None
        self._expected = 0
        self._ready = self._begun = self._all()
        """Slots whose workers have started, and slots whose workers have at least been asked to start."""
        self._warmed: Callable[[], bool] = bool
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.want(wanted)

    def want(self, executors: Executors | None) -> None:
        """From now on request executors by other settings, or none; where Spark allocates them itself, none are requested."""
        self._wanted = executors if self._java.executorAllocationManager().isEmpty() else None
        self._target = None  # the same number of slots may now mean another number of executors
        if self._wanted is not None and self._thread is None:
            self._ready = self._begun = self._all()  # the query uses them already
            self._thread = threading.Thread(target=self._run, name="springtide-executors", daemon=True)
            self._thread.start()

    def slots(self) -> int:
        """Count the slots of all executors that are ready and not about to be released, without those that other queries use."""
        others = sum(n for query, n in list(self._claimed.items()) if query != id(self))
        return max(1, (self._all() if self._wanted is None else min(self._ready, self._all())) - others)

    def executors(self) -> int:
        """Count the executors that are registered and not about to be released."""
        return self._all() // self.each

    def ready(self) -> int:
        """Count the executors whose workers have started."""
        return self.executors() if self._wanted is None else max(1, min(self._ready, self._all()) // self.each)

    def most(self) -> int | None:
        """Count the slots that `wanted` allows (None if it sets no limit); without `wanted`, the current ones."""
        if self._wanted is None:
            return self.slots()
        return None if self._wanted.most is None else self._wanted.most * self.each

    @property
    def each(self) -> int:
        """The number of slots of one executor."""
        return self._each or max(1, self._all() // max(1, int(self._java.getExecutorIds().size())))

    def grows(self) -> bool:
        """Return whether executors can be requested here."""
        return self._wanted is not None

    def request(self, slots: int) -> None:
        """State the target, once for every change."""
        if self._wanted is None:
            return
        self._claimed[id(self)] = slots
        target = self._wanted.target(sum(self._claimed.values()), self.each)
        if target != self._target:
            self._target, self._expected = target, target * self.each
            self._work.put(lambda: self._state(target))

    def release(self, slots: int) -> None:
        """Release executors beyond the target, the newest first; busy ones stay until the next time."""
        if self._wanted is None:
            return
        self.request(slots)
        target = self._wanted.target(sum(self._claimed.values()), self.each)
        if self._all() <= target * self.each:
            return
        done = threading.Event()

        def act() -> None:
            try:
                self._kill(target)
            finally:
                done.set()

        self._work.put(act)
        done.wait(_RELEASED_WITHIN)

    def close(self) -> None:
        """Leave the executors to the session's other queries, or to the end of the session."""
        self._claimed.pop(id(self), None)
        self._work.put(None)

    # ── the scheduler ─────────────────────────────────────────────────────────────────────────────────────────────

    def _all(self) -> int:
        return int(self._java.maxNumConcurrentTasks(self._profile))

    def _look(self) -> None:
        """Have workers started in new slots; the slots are ready when that is done."""
        found = self._all()
        self._ready, self._begun = min(self._ready, found), min(self._begun, found)
        if found > self._expected:
            return  # some are about to be released
        if self._begun < found:
            # One task for every slot. Free slots, including the new ones, get one each, and are then not free for an epoch's tasks.
            self._begun, self._warmed = found, self._warm_up(found)
        elif self._ready < found and self._warmed():
            self._ready = found

    def _state(self, target: int) -> None:
        self._java.requestTotalExecutors(target, 0, self._jvm.PythonUtils.toScalaMap({}))

    def _kill(self, target: int) -> None:
        backend = self._java.schedulerBackend()
        found = self._java.getExecutorIds()
        active = [i for i in (str(found.apply(n)) for n in range(found.size())) if backend.isExecutorActive(i)]
        surplus = len(active) - target
        for executor in leaving(active):
            if surplus <= 0:
                break
            surplus -= self._let_go(backend, executor)

    def _let_go(self, backend: Any, executor: str) -> bool:
        if self._decommission:
            why = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
                "not needed", self._jvm.scala.Option.empty()
            )
            return bool(backend.decommissionExecutor(executor, why, False, False))
        one = self._jvm.PythonUtils.toSeq([executor])
        return bool(backend.killExecutors(one, False, False, False).nonEmpty())

    def _run(self) -> None:
        """Talk to the cluster manager, which may take its time, and look after new executors, in parallel with the epochs."""
        while True:
            try:
                action = self._work.get(timeout=_SOON if self._ready < self._expected else _LATER)
            except queue.Empty:
                action = self._look
            if action is None:
                return
            try:
                action()
            except Exception:  # no answer, or the cluster manager is gone: Spark has logged it
                self._target = None  # to be stated again, after the next epoch


def _slots_of_each(context: SparkContext) -> int | None:
    """Work out from the settings how many tasks an executor runs at once; None: a standalone worker gives all its cores to one executor."""
    conf = context.getConf()
    cores = conf.get("spark.executor.cores", "" if str(context.master).startswith("spark:") else "1")
    return max(1, int(int(cores) // float(conf.get("spark.task.cpus", "1") or 1))) if cores else None
