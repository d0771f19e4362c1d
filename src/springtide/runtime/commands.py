"""Commands to a running query: they are taken from the control folder between two epochs, and each is answered by itself.

    take ──→ the next epoch runs with it ──→ committed: answered, its file is removed ──→ measured: the answer says what it cost
       └──→ refused or nothing to do: answered at once

Whatever lies in that folder, a run does not die of it: a command that makes no sense is refused, and an event says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from springtide.elastic import maps
from springtide.query.errors import shown
from springtide.query.plurals import plural
from springtide.runtime.reconfiguring import Reconfiguring
from springtide.state.answers import Answer, Change, write_answer
from springtide.state.bucket_map import BucketMap
from springtide.state.control import Command, receive
from springtide.state.instructions import Instruction
from springtide.state.manifest import Manifest

Reload = Callable[[], Future[Manifest]]
"""Begins to read the query's file again, and to replace the query; the epochs go on meanwhile."""

_INSTANCES, _BUCKETS = 10_000, 1 << 16
"""More than anybody can mean."""
_NO_FILE = "it was not started from a file by springtide run; the program that started it can call run.replace(query)"
_SHOWN = 60
_REASON = 2_000
"""Characters of a reason in an answer."""


@dataclass
class _Taken:
    """A command that takes effect with the next epoch, or when its executors have come."""

    file: Path
    instruction: Instruction | None = None
    """How it changes a subquery; None for `pause` and `resume`."""
    answer: Answer | None = None
    """The last one."""


class Commands:
    """The control folder of one run."""

    def __init__(self, root: Path, note: Callable[[str], None]) -> None:
        """Look at nothing yet."""
        self._root, self._note = root, note
        self._taken: list[_Taken] = []
        self._reloading: tuple[Path, Future[Manifest]] | None = None
        """A command to read the query's file again that is on its way; the next one waits for it."""
        self._stops: list[Path] = []
        """Commands to stop, which are answered when the run has ended."""
        self._stuck: set[Path] = set()
        """Files that are done with but could not be removed, or that were refused and stay."""
        self.stopped = False
        """Whether the run was told to stop while it waited for something."""

    @property
    def is_ending(self) -> bool:
        """Whether somebody told the query to stop, and not only this run."""
        return bool(self._stops)

    def take(self, change: Callable[[], Reconfiguring], reload: Reload | None = None) -> bool:
        """Carry out commands, from the next epoch on; return whether the run should stop. After a `reload` another `change` may decide."""
        stop = self.stopped
        self._reloaded()
        for command in self._receive():
            if command.name == "stop":
                stop = True
                self._stop(command)
                continue
            try:
                if command.name == "reload":
                    self._reload(command, reload)
                else:
                    self._do(command, change())
            except Exception as error:  # whatever somebody wrote into a file, the run continues
                self._refused(command.name, _file_of(command), error)
        return stop

    def told_to_stop(self) -> bool:
        """Return whether somebody wants the run to stop while it waits for something."""
        with suppress(OSError):  # what it waits for may be the checkpoint's own disk
            for command in self._receive():
                if command.name == "stop":
                    self.stopped = True
                    self._stop(command)
        return self.stopped

    def committed(self, manifest: Manifest, change: Reconfiguring) -> None:
        """Answer the commands that have taken effect: the manifest records them."""
        for taken in self._taken[:]:
            answer = _committed(taken, manifest, change)
            if taken.answer is not None and taken.answer.status == answer.status:
                continue
            self._end(taken.file, answer)
            taken.answer = answer
            if answer.final:
                self._taken.remove(taken)

    def measured(self, outcome: Mapping[str, Any]) -> None:
        """Complete the answer to the command that changed a subquery with what the change cost."""
        for taken in self._taken[:]:
            answer = taken.answer
            if answer is None or answer.change is None or answer.change.subquery != outcome["subquery"]:
                continue
            cost = {name: outcome[name] for name in ("seconds", "extra_seconds", "bytes_moved")}
            change = replace(answer.change, **cost)
            self._answer(taken.file, replace(answer, epoch=outcome["in_epoch"], change=change, final=True))
            self._taken.remove(taken)

    def ended(self, epoch: int, failure: str = "") -> None:
        """Answer the commands to stop: the run has released its checkpoint, or failed to. What is still on its way will not come."""
        self._reloaded()
        if self._reloading is not None:
            self._end(self._reloading[0], Answer("failed", "the run ended before the query was replaced", epoch))
            self._reloading = None
        while self._stops:
            answer = Answer("failed", failure, epoch) if failure else Answer("done", epoch=epoch)
            self._answer(self._stops.pop(), answer)

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _receive(self) -> list[Command]:
        known = {*self._stuck, *(taken.file for taken in self._taken)}
        return receive(self._root, known if self._reloading is None else {*known, self._reloading[0]}, self._refuse)

    def _refuse(self, file: Path, reason: str) -> None:
        self._note(f"the file {file.name[:_SHOWN]!r} in the control folder was refused: {reason}")
        self._answer(file, Answer("refused", reason))
        self._stuck.add(file)

    def _refused(self, name: str, file: Path, error: Exception) -> None:
        reason = _reason(error)
        self._note(f"the command {name[:_SHOWN]!r} was refused: {reason}")
        self._end(file, Answer("refused", reason))

    def _stop(self, command: Command) -> None:
        file = _file_of(command)
        self._remove(file)
        self._stops.append(file)

    def _end(self, file: Path, answer: Answer) -> None:
        """Answer a command, and then remove it: if the run dies in between, the next one answers again."""
        self._answer(file, answer)
        self._remove(file)

    def _answer(self, file: Path, answer: Answer) -> None:
        try:
            write_answer(file, answer)
        except OSError as error:
            self._note(f"the answer to the command in {file} could not be written ({error.strerror})")

    def _remove(self, file: Path) -> None:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            self._note(f"the command in {file} is done, but cannot be removed ({error.strerror}): remove it")
            self._stuck.add(file)

    # ── what they mean ────────────────────────────────────────────────────────────────────────────────────────────

    def _do(self, command: Command, change: Reconfiguring) -> None:
        file = _file_of(command)
        match command.name:
            case "pause" | "resume":
                if change.manager is None:
                    raise ValueError("the query is not elastic; start it with springtide run --elastic")
                change.pause() if command.name == "pause" else change.resume()
                self._taken.append(_Taken(file))
            case "scale" | "move" | "rebalance":
                instruction = _instruct(command, change)
                if instruction is None:
                    self._end(file, Answer("done", _nothing(command, change)))
                    return
                self._overtake(instruction.subquery)
                self._taken.append(_Taken(file, instruction))
            case _:
                there_are = "scale, move, rebalance, pause, resume, reload and stop"
                raise ValueError(f"there is no such command; there are {there_are}")

    def _reload(self, command: Command, reload: Reload | None) -> None:
        if reload is None:
            raise ValueError(_NO_FILE)
        if self._reloading is None:
            self._reloading = _file_of(command), reload()
            self._reloaded()

    def _reloaded(self) -> None:
        """Answer the command to read the file again, if it is known what came of it."""
        if self._reloading is None or not self._reloading[1].done():
            return
        (file, future), self._reloading = self._reloading, None
        try:
            self._end(file, Answer("done", epoch=future.result().epoch))
        except Exception as error:  # user code may raise anything
            self._refused("reload", file, error)

    def _overtake(self, subquery: str) -> None:
        """Answer an earlier command to a subquery that has been told something else before an epoch ran with it."""
        for taken in self._taken[:]:
            if taken.instruction is not None and taken.instruction.subquery == subquery:
                self._end(taken.file, Answer("failed", f"a later command to {subquery} has replaced it"))
                self._taken.remove(taken)


def _instruct(command: Command, change: Reconfiguring) -> Instruction | None:
    given, protocol = command.options, command.options.get("protocol")
    step = _text(given, "step")
    if command.name == "scale":
        return change.scale(step, _number(given, "instances", _INSTANCES), protocol)
    if command.name == "move":
        return change.move(step, _numbers(given, "buckets"), _number(given, "to", _INSTANCES), protocol)
    return change.rebalance(step, protocol)


def _nothing(command: Command, change: Reconfiguring) -> str:
    """Return why there was nothing to do."""
    step, given = command.options["step"], command.options
    if command.name == "move":
        return f"instance {given['to']} of {step} has {'it' if len(given['buckets']) == 1 else 'them'} already"
    if command.name == "rebalance":
        return f"the load of the instances of {step} is as even as it can be"
    has = change.maps[change.subquery_of(step)].instances
    already = f"{step} has {plural(has, 'instance')} already"
    return f"{already}; it has no more buckets" if has < given["instances"] else already


def _committed(taken: _Taken, manifest: Manifest, change: Reconfiguring) -> Answer:
    """Return the answer to a command after an epoch."""
    instruction = taken.instruction
    if instruction is None:
        return Answer("done", epoch=manifest.epoch)
    name = instruction.subquery
    if name not in manifest.maps:
        return Answer("failed", f"the query was replaced, and has no {name} any more")
    now = manifest.maps[name]
    if now.version >= instruction.after.version:
        return Answer("done", "", manifest.epoch, _change(instruction, now), final=False)
    if change.waits(name):
        return Answer(
            "waiting",
            f"{name} waits for executors to have {plural(instruction.after.instances, 'instance')}",
            final=False,
        )
    return Answer("failed", "its executors did not come in time")


def _change(instruction: Instruction, now: BucketMap) -> Change:
    """Compare the map before a command with the one that an epoch ran with: it has fewer instances if executors did not come."""
    moved = len(maps.moved(instruction.before, now))
    before, after = instruction.before.instances, now.instances
    return Change(instruction.subquery, instruction.kind, before, after, moved, len(now.owners))


def _file_of(command: Command) -> Path:
    assert command.file is not None
    return command.file


def _reason(error: Exception) -> str:
    text = f"{error.args[0]} is missing" if isinstance(error, KeyError) and error.args else str(error)
    return text[:_REASON]


def _text(given: Mapping[str, Any], name: str) -> str:
    if not isinstance(given[name], str):
        raise ValueError(f"{name} is not a string")
    return str(given[name])


def _number(given: Mapping[str, Any], name: str, most: int) -> int:
    return _whole(given[name], name, most)


def _numbers(given: Mapping[str, Any], name: str) -> list[int]:
    if not isinstance(given[name], list):
        raise ValueError(f"{name} is not a list of numbers")
    return [_whole(value, name, _BUCKETS) for value in given[name]]


def _whole(value: object, name: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > most:
        raise ValueError(f"{name} is {shown(value)}, not a whole number up to {most:,}")
    return value
