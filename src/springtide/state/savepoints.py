"""Savepoints: checkpoints with a name, in the folder `savepoints` of the one they were made of, that no clean-up touches.

A query may be started from one in a changed form, as long as the state still fits: stateless steps and sinks may come, go and change, and
so may the degree. What is refused, and why, is said by `misfit`.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from springtide.query.errors import nearest
from springtide.state import disk
from springtide.state.checkpoint import Checkpoint, marker_of
from springtide.state.copying import copy, copy_there, link_to
from springtide.state.errors import CheckpointError
from springtide.state.forms import INPUTS, ROUTING, Identity, changed_parts, changed_state
from springtide.state.log import Log
from springtide.state.manifest import Manifest
from springtide.state.names import MARKER, SAVEPOINTS, savepoint
from springtide.state.parsing import parsed
from springtide.state.read_only import ReadOnlyCheckpoint, Source, opened, store_of
from springtide.state.stores import Store

_HINT = "give another name, or remove its folder"


def save(source: Source, name: str) -> Path | str:
    """Keep the newest epoch of a checkpoint as a savepoint; return its folder, or its address. The query may be running."""
    store = store_of(source)
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise CheckpointError(store.url, f"cannot have a savepoint named {name!r}", "use letters, digits, - and _")
    return _save_there(store, name) if store.local is None else _save_here(store.local, name)


def _save_here(root: Path, name: str) -> Path:
    """Keep it by hard links."""
    checkpoint = ReadOnlyCheckpoint(Store.at(root), root)
    checkpoint.identity()
    place = root / SAVEPOINTS / name
    if place.exists():
        raise CheckpointError(str(root), f"has a savepoint {name} already", _HINT)
    partial = place.with_name(f".{name}-{uuid.uuid4().hex[:8]}")
    try:
        link_to(checkpoint, partial, outbox=False)
        os.rename(partial, place)
        disk.flush_names(root, [f"{savepoint(name)}/{MARKER}"])
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        raise CheckpointError(str(root), f"has a savepoint {name} already", _HINT) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return place


def _save_there(store: Store, name: str) -> str:
    """Have an object store copy the files of the newest epoch; what makes the savepoint one comes last, and only if there is none."""
    place = store.under(savepoint(name))
    if place.exists(MARKER):
        raise CheckpointError(store.url, f"has a savepoint {name} already", _HINT)
    marker = copy_there(store, savepoint(name), outbox=False)
    if not place.create(MARKER, marker):
        raise CheckpointError(store.url, f"has a savepoint {name} already", _HINT)
    return place.url


def release(source: Source, name: str) -> None:
    """Remove a savepoint, with what nothing else needs. What makes it one goes first."""
    store = store_of(source)
    place = store.under(savepoint(name))
    if not re.fullmatch(r"\w[\w.-]*", name) or not place.exists(MARKER):
        raise CheckpointError(store.url, f"has no savepoint {name!r}", nearest(name, savepoints(store)))
    place.delete(MARKER)
    if place.local is not None:
        shutil.rmtree(place.local)
    else:
        place.delete(*place.list())


def savepoints(source: Source) -> dict[str, Manifest]:
    """Return the savepoints of a checkpoint by name, with the epoch that each is of; oldest first."""
    store = store_of(source)
    found: dict[str, Manifest] = {}
    if store.local is not None:
        names = [f.name for f in (store.local / SAVEPOINTS).glob("*")]
    else:
        names = [path.split("/")[1] for path in store.list(SAVEPOINTS) if path.endswith(f"/{MARKER}")]
    for name in names:
        newest = Log(store.under(savepoint(name))).tail().manifests() if not name.startswith(".") else []
        found |= {name: newest[-1]} if newest else {}
    return dict(sorted(found.items(), key=lambda item: (item[1].epoch, item[0])))


# ── starting from one ─────────────────────────────────────────────────────────────────────────────────────────────


def adopt(savepoint: str | Path | Store, target: Checkpoint, identity: Identity, subqueries: Container[str]) -> int:
    """Make a new checkpoint of a savepoint, for a query in perhaps another form; return the epoch after which it continues.

    A checkpoint that was made of the same savepoint before is left as it is: a start that is repeated goes on. `subqueries` are those of the new form.
    """
    with opened(savepoint) as found:
        manifests = found.chain()
        origin = {"savepoint": found.store.url, "epoch": manifests[-1].epoch}
        store = target.store
        if (marker := _marker(target)) is not None:
            if parsed(marker).get("origin") != origin:
                raise CheckpointError(
                    store.url,
                    f"has state of its own, and cannot begin with {found.store.url}",
                    "to continue with this checkpoint leave the savepoint out; otherwise give a new folder",
                )
            return manifests[-1].epoch
        if any(target.root.iterdir()) if target.remote is None and target.root.exists() else store.list():
            raise CheckpointError(store.url, "is not empty", "give an empty or a new folder")
        if (reason := misfit(found.identity(), identity)) is not None:
            raise CheckpointError(found.store.url, f"does not fit this query: {reason[0]}", reason[1])
        lineage = found.lineage().copied(manifests[-1].epoch)
        copy(
            found,
            [_fitted(m, subqueries) for m in manifests],
            store,
            link=True,
            outbox=False,
            identity=marker_of(identity, lineage, origin=origin),
        )
        return manifests[-1].epoch


def _marker(target: Checkpoint) -> bytes | None:
    """Return what makes a place a checkpoint, if it is one."""
    if target.remote is None:
        return target.marker() if (target.root / MARKER).exists() else None
    try:
        return target.remote.read(MARKER)
    except FileNotFoundError:
        return None


def _fitted(manifest: Manifest, subqueries: Container[str]) -> Manifest:
    """Leave out what belongs to stateless subqueries that are no more; what the elastic manager remembers may be about them."""
    maps = {n: m for n, m in manifest.maps.items() if n in subqueries or n in manifest.state}
    return replace(manifest, maps=maps, elastic=None, form=None)


def misfit(found: Identity, wanted: Identity) -> tuple[str, str] | None:
    """Return why the state of one form of a query is of no use to another, and what to do; None when it fits."""
    anew = "start with a new checkpoint"
    if found["hash"] != wanted["hash"]:
        return (
            f"it was written with another hash of keys (Polars {found['polars']}, here {wanted['polars']})",
            f"use Polars {found['polars']}, or {anew}",
        )
    if found["buckets"] != wanted["buckets"]:
        return (
            f"its state is in {found['buckets']} buckets and cannot be redistributed to {wanted['buckets']}",
            f"start with buckets={found['buckets']}, or {anew}; any number of instances will do",
        )
    for what, names in (("source", _sources), ("step", _stateful)):
        before, after = names(found), names(wanted)
        for name in sorted(before.keys() | after.keys()):
            if name not in after:
                return f"the {what} {name} is gone, and its state would be lost", f"keep {name}, or {anew}"
            if name not in before:
                return (
                    f"the {what} {name} is new, and has no state in it",
                    f"give {name} a query of its own, or {anew}",
                )
            if before[name] != after[name]:
                was, now = (text[name].removeprefix("source: ") for text in (before, after))
                return f"the {what} {name} was {was}, and now is {now}", f"keep {name} as it was, or {anew}"
            if other := changed_state(found, wanted, name):
                return f"the state of the step {name} would be another one: {other[0]}", f"{other[1]}, or {anew}"
            known = ROUTING in found.get("state", {}).get(name, {})
            changed = changed_parts(found, wanted, name, without=INPUTS)
            if change := next((c for c in changed if not (known and c.startswith(f"{ROUTING}: "))), None):
                return f"the {what} {name} has changed: {change}", f"keep {name} as it was, or {anew}{_code(change)}"
    return None


def _code(change: str) -> str:
    """Return how new code can continue with the state of the old."""
    return "; code whose state still fits says so with version = the digest that it had" * change.startswith("operator")


def _sources(identity: Identity) -> dict[str, str]:
    """Return the sources with their columns."""
    return {n: text for n, text in identity["steps"].items() if text.startswith("source: ")}


def _stateful(identity: Identity) -> dict[str, str]:
    """Return the stateful steps: what they do, to which columns."""
    state = identity.get("state", {})
    return {name: f"{identity['steps'].get(name)} over {of.get('columns')}" for name, of in state.items()}
