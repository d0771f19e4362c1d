"""The sequential reference: one thread, one row at a time, in the most obvious correct code.

It does what docs/semantics.md says and shares no kernel with the engine: it is the oracle of the tests.

    values → tuples → ingest → stateless, aggregates, joins, operators → interpreter → result
"""

from springtide.runtime.reference.interpreter import Given, Inputs, Observer, run
from springtide.runtime.reference.result import Result

__all__ = ["Given", "Inputs", "Observer", "Result", "run"]
