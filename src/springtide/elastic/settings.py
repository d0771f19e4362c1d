"""How elastic a query should be, as its user specifies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from typing import TypeGuard
from warnings import warn

from springtide.elastic.policies.balancing import Balancing
from springtide.elastic.policies.policy import Policy
from springtide.elastic.policies.threshold import Threshold
from springtide.elastic.protocols import ProtocolChoice, check_protocol
from springtide.elastic.resources.sizing import Executors
from springtide.query.errors import QueryError, shown
from springtide.query.types import whole
from springtide.query.usage import usage_of
from springtide.state.instructions import Instruction

_WHERE = "(elastic)"

Veto = Callable[[Instruction], str | None]
"""Returns why an instruction must not be carried out, or None if it may."""


@usage_of("st.Elastic(min=1, max=16, policy=st.Foresight())", "(elastic)")
@dataclass(frozen=True)
class Elastic:
    """The policy, and the bounds that apply to all its proposals.

    >>> Elastic(min=1, max=16).bounds("heavy", most=256)
    (1, 16)
    >>> Elastic(limits={"heavy": (2, 500)}).bounds("heavy", most=256)
    (2, 256)
    """

    min: int = 1
    """The minimum number of instances of each subquery."""
    max: int | None = None
    """The maximum number of instances of each subquery."""
    policy: Policy = field(default_factory=Threshold)
    balancing: Balancing | None = field(default_factory=Balancing)
    """Balances the load while the policy leaves the number of instances alone; None turns balancing off."""
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Step → its own minimum and maximum."""
    slots: int | None = None
    """Tasks that may ever run at once. Stages run one after another, so this bounds the instances of each stage."""
    executors: Executors | None = field(default_factory=Executors)
    """On a cluster, executors come and go with the instances; None leaves them as they are."""
    every: float = 5.0
    """Seconds that a summary covers, as nearly as whole epochs allow; each summary leads to a decision. Shorter is quicker, but more nervous."""
    grace: float = 10.0
    """Seconds after a change in which the same subquery is left alone: measurements in that time reflect the change itself."""
    confirmations: int = 2
    """Consecutive summaries that must ask for fewer instances before any are removed. Instances are added at once."""
    protocol: ProtocolChoice = "virtual"
    """How buckets move to new owners, see `protocols`; "rule" chooses automatically."""
    veto: Veto | None = None
    """Can refuse an instruction."""
    remember: int = 1000
    """How many summaries a policy can look back on."""
    patience: InitVar[int | None] = None
    """The old name of `confirmations`."""

    def __post_init__(self, patience: int | None) -> None:
        """Refuse bounds that cannot be met."""
        if patience is not None:
            warn("st.Elastic(patience=…) is called confirmations= now", DeprecationWarning, stacklevel=4)
            object.__setattr__(self, "confirmations", patience)
        if not _is_policy(self.policy):
            example = f"{self.policy.__name__}()" if isinstance(self.policy, type) else "st.Threshold()"
            hint = f"give an object with a method decide, such as {example}"
            raise QueryError(_WHERE, f"policy={shown(self.policy)} is not a policy", hint)
        _check_types(self)
        for name, (least, most) in {"": (self.min, self.max or self.min), **self.limits}.items():
            if not 1 <= least <= most:
                whose = f" of {name}" if name else ""
                raise ValueError(f"the limits{whose} must be 1 ≤ min ≤ max, not {least} and {most}")
        check_protocol(self.protocol)
        if self.every < 0 or self.grace < 0 or self.confirmations < 1 or self.remember < 0:
            raise ValueError("every, grace and remember cannot be negative, and confirmations is at least 1")

    def of(self, subquery_of: Callable[[str], str], slots: int | None) -> Elastic:
        """Return the settings for a plan and a machine: limits by subquery instead of by step, and no more slots than there are."""
        limits = {subquery_of(step): bounds for step, bounds in self.limits.items()}
        return replace(self, limits=limits, slots=slots if self.slots is None else self.slots)

    def bounds(self, subquery: str, most: int | None) -> tuple[int, int | None]:
        """Return the minimum and maximum number of instances of a subquery that can use at most `most`."""
        low, high = self.limits.get(subquery, (self.min, self.max))
        highest = [n for n in (high, most) if n is not None]
        return (low if most is None else min(low, most)), (min(highest) if highest else None)


def elastic_of(given: bool | Elastic | Policy | None) -> Elastic | None:
    """Interpret what a user specifies: nothing, yes, a policy, or full settings.

    >>> elastic_of(True).max, elastic_of(None)
    (None, None)
    """
    if given is None or given is False:
        return None
    if given is True:
        return Elastic()
    if isinstance(given, Elastic):
        return given
    if _is_policy(given):
        return Elastic(policy=given)
    raise QueryError(
        "(elastic)", f"{shown(given)} says nothing about elasticity", "give True, a policy or st.Elastic(max=16)"
    )


def _check_types(given: Elastic) -> None:
    """Refuse settings of the wrong type now: later an epoch would fail because of them."""
    for name in ("min", "max", "slots", "confirmations", "remember"):
        if getattr(given, name) is not None:
            whole(_WHERE, name, getattr(given, name))
    for name in ("every", "grace"):
        if isinstance(getattr(given, name), bool) or not isinstance(getattr(given, name), int | float):
            problem = f"{name}={shown(getattr(given, name))} is not a number of seconds"
            raise QueryError(_WHERE, problem, f"write for example {name}=5")
    limits = given.limits if isinstance(given.limits, Mapping) else {"": given.limits}
    for step, bounds in limits.items():
        if not isinstance(bounds, tuple | list) or len(bounds) != 2:
            hint = "give the fewest and the most instances of a step: limits={'heavy': (2, 8)}"
            raise QueryError(_WHERE, f"limits={shown(given.limits)} does not bound steps", hint)
        for bound in bounds:
            whole(_WHERE, f"limits[{step!r}]", bound)
    for name, kind in (("balancing", Balancing), ("executors", Executors)):
        if getattr(given, name) is not None and not isinstance(getattr(given, name), kind):
            problem = f"{name}={shown(getattr(given, name))} is not an st.{kind.__name__}"
            raise QueryError(_WHERE, problem, f"give st.{kind.__name__}(…), or None")


def _is_policy(given: object) -> TypeGuard[Policy]:
    return callable(getattr(given, "decide", None)) and not isinstance(given, type)
