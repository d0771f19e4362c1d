"""What decides about instances, part by part: whether that has changed, and how. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields

from springtide.elastic.settings import Elastic
from springtide.runtime.digests import of_code
from springtide.state.forms import FormPart

Settings = Mapping[str, FormPart]
"""By the names of the fields of `Elastic`; empty where nothing decides."""


def settings_of(elastic: Elastic | None) -> Settings:
    """Take settings apart; a policy is its code and its values, and the same in every process."""
    return {} if elastic is None else {f.name: _part(getattr(elastic, f.name)) for f in fields(elastic)}


def digest_of(settings: Settings) -> str:
    """Return a few hex digits that tell settings from others; nothing for none.

    >>> digest_of(settings_of(Elastic(max=2))) == digest_of(settings_of(Elastic(max=2)))
    True
    >>> digest_of(settings_of(Elastic(max=2))) == digest_of(settings_of(Elastic(max=3))), digest_of({})
    (False, '')
    """
    lines = [" ".join([name, part.text, part.digest]) for name, part in settings.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] if lines else ""


def differences(before: Settings, after: Settings) -> list[str]:
    """Return what is different, one sentence each.

    >>> differences(settings_of(Elastic(max=2)), settings_of(Elastic(max=3)))
    ['elasticity: max: 2 → 3']
    >>> differences(settings_of(Elastic()), settings_of(None))
    ['elasticity is over']
    """
    if not before or not after:
        return [] if before == after else ["elasticity is over" if before else "elasticity begins"]
    found = ((name, part.change(after[name])) for name, part in before.items())
    return [f"elasticity: {name}: {change}" for name, change in found if change is not None]


def _part(value: object) -> FormPart:
    if callable(value) or hasattr(value, "decide"):
        return of_code(value)
    return FormPart(repr(dict(value) if isinstance(value, Mapping) else value))
