"""`Query`: what a user holds in hand, and everything that can be done with it."""

from __future__ import annotations

from springtide.compiler.explain import explain
from springtide.compiler.mermaid import mermaid
from springtide.compiler.pipeline import compile
from springtide.compiler.plan import BUCKETS, Plan
from springtide.query.graph import Graph


class Query(Graph):
    """A query over streams: a name and the sinks at its ends. Nothing runs before it is told to.

    >>> query = st.Query("copy", calls.to(st.memory_sink()))
    >>> list(query.steps)
    ['calls', 'sink']
    """

    def plan(self, *, buckets: int = BUCKETS) -> Plan:
        """Compile the query: its subqueries and what goes between them (SC-3, SC-5).

        >>> long = calls.aggregate(by="src", window=st.tumbling("1h"), n=st.count(), name="hourly")
        >>> [s.name for s in st.Query("hourly", long.to(st.memory_sink())).plan().subqueries]
        ['calls', 'hourly']
        """
        return compile(self, buckets)

    def explain(self, *, buckets: int = BUCKETS, as_mermaid: bool = False) -> str:
        """Say in text, or as a Mermaid flowchart, what the query will run as.

        >>> print(st.Query("copy", calls.to(st.memory_sink(), name="copy")).explain())
        query copy
        <BLANKLINE>
        step   kind    input  what it does
        calls  source         memory, 0 rows → src:str dst:str duration:i64 ts:time
        copy   sink    calls  memory
        <BLANKLINE>
        subquery calls  stateless  calls → copy
        """
        plan = self.plan(buckets=buckets)
        return mermaid(plan) if as_mermaid else explain(plan)
