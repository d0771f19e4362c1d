"""How a query runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from springtide.elastic.settings import Elastic, elastic_of
from springtide.query.errors import QueryError, SpringtideError, shown
from springtide.query.graph import Graph
from springtide.runtime.durability import Durability
from springtide.runtime.replicas.settings import Replicated
from springtide.runtime.tracing import Spans
from springtide.state.claims import Sighting

_RELOAD = "reload= (function)"


@dataclass(frozen=True)
class Options:
    """How a query runs."""

    instances: int | Mapping[str, int] | None = None
    """For every subquery, or by step; those not named keep as many as before."""
    rows_per_epoch: int | None = None
    """How many rows an epoch takes from each input at most; None: as many as `admission.py` finds right."""
    usual: int = 1
    """How many instances a subquery gets that never had any and is not named."""
    elastic: Elastic | None = None
    """Who decides about instances and buckets while the query runs; None: only people do."""
    durability: Durability = field(default_factory=Durability)
    """When state is made durable, and where."""
    patience: float = 0.0
    """Seconds for which a call that fails because something outside is unavailable is tried again."""
    sighting: Sighting | None = None
    """Of a run that stood by: what it has seen of the checkpoint that it takes over."""
    signs: float | None = None
    """Seconds between two signs of life for runs that stand by; None: as usual for where the checkpoint is."""
    reload: Callable[[], tuple[Graph, Elastic | None]] | None = None
    """Reads the query again from where it was written, and who decides about its instances; None: nobody knows where that is."""
    history: bool = False
    """Whether steps that are new in a query that is read again begin with the history of their sources."""
    replica: Replicated | None = None
    """Of which group it is a replica, and by which name; None: it is the only run."""
    spans: Spans = field(default_factory=Spans)
    """Receives where the time of an epoch goes."""
    clock: Callable[[], float] = field(default=time.time)
    """The time of day, for people, and for how long rows waited."""
    timer: Callable[[], float] = field(default=time.monotonic)
    """Times everything else: it never goes back, and nobody can set it."""

    def read_again(self) -> tuple[Graph, Elastic | None]:
        """Read the query again; whatever is wrong with the function that does it is a QueryError."""
        assert self.reload is not None
        try:
            found = self.reload()
        except SpringtideError:
            raise
        except Exception as error:
            raise QueryError(_RELOAD, f"it raised {type(error).__name__}: {error}", "correct it") from error
        if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], Graph):
            raise QueryError(
                _RELOAD,
                f"it returned {shown(found)}",
                "return the query and its elasticity: query, None if it has none",
            )
        return found[0], elastic_of(found[1])
