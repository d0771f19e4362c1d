"""What `--master`, `--conf`, `--packages` and `--session` say: the Spark session that a command runs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from springtide.cli.errors import CommandError
from springtide.cli.load import import_beside
from springtide.query.errors import nearest

MASTER = "local[*,4]"
PACKAGES = "spark.jars.packages"


@dataclass(frozen=True)
class SessionOptions:
    """How a person wants Spark to run."""

    master: str = MASTER
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further settings by their names; there may be secrets among them."""
    function: Callable[[], Any] | None = None
    """A function that makes the session instead."""


def parse_session(
    master: str | None = None,
    conf: Sequence[str] = (),
    packages: str | None = None,
    session: str | None = None,
    *,
    module: ModuleType | None = None,
    folder: Path | None = None,
) -> SessionOptions:
    """Read the options; a session function is one of `module`, the query's own file, or `name:function` in `folder` or wherever Python finds modules.

    >>> parse_session(conf=["spark.executor.memory=4g"], packages="org.example:one:1.0").settings
    {'spark.executor.memory': '4g', 'spark.jars.packages': 'org.example:one:1.0'}
    """
    if session is not None:
        others = {"--master": master, "--conf": conf, "--packages": packages}
        if given := [option for option, value in others.items() if value]:
            raise CommandError(f"--session makes the session by itself: set what {given[0]} sets in {session}")
        return SessionOptions(function=_function(session, module, folder))
    settings = dict(map(_setting, conf))
    if packages is not None:
        if PACKAGES in settings:
            raise CommandError(f"--packages and --conf {PACKAGES}=… say the same thing; give one of them")
        settings[PACKAGES] = packages
    if "spark.master" in settings:
        raise CommandError("--conf spark.master=… cannot be given: use --master")
    return SessionOptions(master or MASTER, settings)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        said = f" {text!r}" if not equals else ""  # what follows the = may be a secret
        raise CommandError(f"--conf{said} is not understood; give a setting and its value: spark.executor.memory=4g")
    return name.strip(), value.strip()


def _function(name: str, module: ModuleType | None, folder: Path | None) -> Callable[[], Any]:
    place, colon, attribute = name.rpartition(":")
    where = import_beside("--session", place, folder) if colon else module
    found = getattr(where, attribute, None)
    if found is None:
        known = [n for n, value in vars(where).items() if callable(value) and not n.startswith("_")]
        hint = nearest(attribute, known) if known else "it defines none"
        raise CommandError(
            f"--session: there is no function {attribute!r} in {place or 'the file of the query'}; {hint}"
        )
    if not callable(found):
        raise CommandError(f"--session {name} is not a function; give one that returns a Spark session")
    return found  # type: ignore[no-any-return]
