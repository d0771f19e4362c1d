"""What sources and sinks are: everything that you need to write one, and that the built-in ones are made with.

A **source** derives from `Source`. In the driver its feed *takes* slices (ranges of rows, named but not read) and says where it will continue; tasks *read*
them, anywhere, as often as they are asked to; the position after the epoch is part of the epoch's commit.

    open → (take → tasks: read → committed)* → close

    class Numbers(Source):
        def schema(self): return pl.Schema({"x": pl.Int64()})
        def describe(self): return "the numbers below a hundred"
        def take(self, position, limit, ts):
            first = position or 0
            stop = min(first + limit, 100)
            slices = (Slice("0", first, stop - first, [first, stop]),) if stop > first else ()
            return Take(slices, stop, streams=("0",), ended=stop == 100, backlog=100 - stop)
        def read(self, part): return Read(pl.LazyFrame({"x": range(*part.data)}))

A **sink** derives from `Sink`. Tasks write the rows of an epoch to files; after the epoch is committed, the driver publishes them. A sink that is exactly
once remembers in its target, in one step with the rows, which epoch of which checkpoint it has. For a target with transactions that is
`LedgerSink`, which leaves nothing to do but the transaction.

    admit (all sinks) → open (all sinks) → (publish → committed)* → close

Hooks (`open`, `committed`, `close`) are called in the driver, by one thread. `open` hears whose run it is (`Owner`); `close` comes once, whatever has
happened. Exceptions that are not a `SpringtideError` are treated as temporary faults, and the call is tried again.

**Secrets**: keep them in a `Secret`. A source goes to the tasks that read it, a sink stays in the driver, apart from its `outbox`; nothing of either is
written down except what they return: positions, `Slice.data`, `describe()` and notes. So no secret may be in those.

`springtide.testing.check_source` and `check_sink` check all of this. `docs/connectors.md` builds one of each from nothing.
"""

from springtide.connectors.failpoints import failpoint
from springtide.connectors.ledger import Advice, Entry, LedgerSink, Target, refusal
from springtide.connectors.owner import Lineage, Owner
from springtide.connectors.rejected import rows_as_json
from springtide.connectors.secret import Secret
from springtide.connectors.sink import (
    ArrowFiles,
    InMemory,
    Outbox,
    ParquetFiles,
    Publication,
    Sink,
    Writer,
    commit_of,
)
from springtide.connectors.source import MISFIT, POSITION, UNLIMITED, Feed, Read, Slice, Source, Take
from springtide.query.connectors import ONE_STREAM, Rows
from springtide.state.disk import flush, make_folder
from springtide.state.errors import AwayError, CheckpointError, LostError
from springtide.state.stores import Store

__all__ = [
    "MISFIT",
    "ONE_STREAM",
    "POSITION",
    "UNLIMITED",
    "Advice",
    "ArrowFiles",
    "AwayError",
    "CheckpointError",
    "Entry",
    "Feed",
    "InMemory",
    "LedgerSink",
    "Lineage",
    "LostError",
    "Outbox",
    "Owner",
    "ParquetFiles",
    "Publication",
    "Read",
    "Rows",
    "Secret",
    "Sink",
    "Slice",
    "Source",
    "Store",
    "Take",
    "Target",
    "Writer",
    "commit_of",
    "failpoint",
    "flush",
    "make_folder",
    "refusal",
    "rows_as_json",
]
