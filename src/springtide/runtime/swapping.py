"""What is done before and after the first epoch of another form (SM-3): what is refused, what is kept of the old form, and what people are told.

`runtime/replacing.py` says what the new form takes over; the engine runs its first epoch, and goes back to the old form if that fails.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from springtide.compiler.plan import Plan
from springtide.elastic.snapshot import Snapshot
from springtide.query.errors import QueryError, SpringtideError
from springtide.runtime.form import Form
from springtide.runtime.replacing import Replacement, replacement
from springtide.runtime.storage import Storage
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import Instruction
from springtide.state.manifest import Manifest
from springtide.state.savepoints import release, save


@dataclass(frozen=True)
class Swap:
    """One replacement of a form of a query by another."""

    before: Form
    after: Form
    found: Replacement
    saved: str | None
    """The savepoint that has the state of steps that are removed, if there are any."""
    usual: float | None
    """The seconds that an epoch of the old form took; None before there was one."""

    def withdraw(self, storage: Storage) -> None:
        """Continue with the old form as if the new one had never existed."""
        self.before.go_on_instead_of(self.after)
        if self.saved is not None:
            with suppress(SpringtideError, OSError):  # then it stays, and takes up some space
                release(storage.checkpoint.store, self.saved)

    def told(self, first: Snapshot) -> tuple[Instruction, list[dict[str, Any]]]:
        """Return what was changed and what that cost, as for a scaling: as an instruction, and as records of the history of decisions."""
        name, key = self.after.plan.graph.name, uuid.uuid4().hex[:12]
        whole = BucketMap(0, 1, ())
        what = "; ".join(self.found.changes) or "nothing that has a state of its own"
        kept = f"; what {', '.join(self.found.leaving)} had is in the savepoint {self.saved}" if self.saved else ""
        told = Instruction(first.time, first.epoch - 1, "replace", name, whole, whole, (), what + kept)
        extra = 0.0 if self.usual is None else first.seconds - self.usual
        return told, [
            {"id": key, "what": str(told), "protocol": "virtual", "waited": 0.0} | told.to_json(),
            {
                "id": key,
                "subquery": name,
                "done": first.time,
                "in_epoch": first.epoch,
                "seconds": first.seconds,
                "extra_seconds": round(extra, 6),
                "bytes_moved": 0,
            },
        ]


def refuse_replica(plan: Plan) -> NoReturn:
    """Refuse to give one replica another form while the others keep the old one."""
    raise QueryError(
        f"{plan.graph.name} (query)",
        "a replica cannot be given another form while it runs: the others would not make the same rows",
        "stop the replicas, and start them with the new query and a new group; code that makes the same rows one after the other, with this one",
    )


def fitting(before: Form, plan: Plan, manifest: Manifest) -> Replacement:
    """Return what another plan takes over from a form after an epoch; refuse what does not fit."""
    found = replacement(before.plan, plan, manifest)
    for name in found.migrated:
        if before.reconfiguring.waits(name):
            hint = "replace the query when it has them, or scale it back first"
            raise QueryError(f"{name} (subquery)", "it waits for executors, and its state is to be migrated", hint)
    return found


def keep_in_savepoint(storage: Storage, found: Replacement) -> str | None:
    """Keep the state of steps that are removed in a savepoint; return its name."""
    epoch = storage.manifest.epoch
    if not found.leaving or epoch < 0:
        return None
    name = f"before-epoch-{epoch + 1}-{uuid.uuid4().hex[:4]}"
    storage.make_durable()
    if storage.checkpoint.remote is None:
        for segment in storage.manifest.segments():
            storage.tiers.find(
                segment
            )  # a savepoint links files of this folder; what it has lost comes from the backup
    save(storage.checkpoint.store, name)
    return name
