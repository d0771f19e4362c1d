"""What `--elastic`, `--min`, `--max`, `--policy` and `--protocol` say, as settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from springtide.cli.errors import CommandError
from springtide.cli.load import import_beside
from springtide.elastic.policies.bottleneck import Bottleneck
from springtide.elastic.policies.ds2 import DS2
from springtide.elastic.policies.foresight import Foresight
from springtide.elastic.policies.learned import Learned
from springtide.elastic.policies.manual import Manual
from springtide.elastic.policies.policy import Policy
from springtide.elastic.policies.predictive import Predictive
from springtide.elastic.policies.threshold import PRESETS, Threshold
from springtide.elastic.protocols import ProtocolChoice
from springtide.elastic.settings import Elastic
from springtide.query.errors import nearest

POLICIES: Mapping[str, Policy] = {
    "threshold": Threshold(),
    **{name.lower(): preset for name, preset in PRESETS.items()},
    "foresight": Learned(Foresight()),
    "autoscale": Predictive(),
    "bottleneck": Bottleneck(),
    "ds2": DS2(),
    "manual": Manual(),
}
"""By the name that a person types."""


def parse_elastic(
    wanted: bool,
    least: int | None = None,
    most: int | None = None,
    policy: str | None = None,
    protocol: ProtocolChoice | None = None,
    *,
    folder: Path | None = None,
    base: Elastic | None = None,
) -> Elastic | None:
    """Return the settings: those of `base`, but for what options say; None if there is neither. A policy of the user's own is looked for in `folder`, and wherever Python finds modules.

    >>> parse_elastic(False, most=16, policy="sc-10").max, parse_elastic(False)
    (16, None)
    """
    given: dict[str, Any] = {"min": least, "max": most, "policy": policy, "protocol": protocol}
    given = {name: value for name, value in given.items() if value is not None}
    if not wanted and not given and base is None:
        return None
    if policy is not None:
        given["policy"] = _policy(policy, folder)
    try:
        found = replace(base or Elastic(), **given)
    except ValueError as error:
        raise CommandError(f"--min and --max: {error}") from None
    return replace(found, balancing=None) if policy == "manual" else found


def _policy(name: str, folder: Path | None) -> Policy:
    if name in POLICIES:
        return POLICIES[name]
    module, colon, attribute = name.rpartition(":")
    if not colon:
        raise CommandError(f"there is no policy {name!r}; {nearest(name, POLICIES)}, or write module:Class")
    found = getattr(import_beside("--policy", module, folder), attribute, None)
    try:
        made: Any = found() if isinstance(found, type) else found
    except Exception as error:
        raise CommandError(f"--policy {name}: {type(error).__name__}: {error}") from None
    if not callable(getattr(made, "decide", None)):
        raise CommandError(f"--policy {name} is not a policy: a class with decide(snapshot, history)")
    return made  # type: ignore[no-any-return]
