"""Spans of epochs for OpenTelemetry: where the time of an epoch goes, next to the spans of the rest of a system.

    epoch ┬ run ┬ calls     the tasks of a subquery, from the first start to the last end
          │     └ heavy
          ├ commit
          ├ publish
          └ settle          durable state, clean-up

Names, numbers and kinds of errors only: no row, no path, no text of an error is in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from springtide.query.errors import SpringtideError
from springtide.runtime.epoch import TaskReport

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


class Spans:
    """Does nothing: for a run without traces."""

    @contextmanager
    def span(self, name: str, **attributes: int | str) -> Iterator[None]:
        """Mark what happens inside as one piece of work."""
        yield

    def tasks(self, reports: Sequence[TaskReport]) -> None:
        """Tell of tasks that are done."""


class Traces(Spans):
    """Reports to OpenTelemetry: to a given provider, or to the one that the program has set."""

    def __init__(self, query: str, provider: TracerProvider | None = None) -> None:
        """Begin to tell of a query."""
        try:
            from opentelemetry import trace
        except ImportError:
            raise SpringtideError(
                "traces need OpenTelemetry; pip install 'springtide[traces]' installs it, or leave traces= out"
            ) from None
        self._trace: Any = trace
        self._tracer = trace.get_tracer("springtide", tracer_provider=provider)
        self._query = query

    @contextmanager
    def span(self, name: str, **attributes: int | str) -> Iterator[None]:
        """Open a span, as a child of the one that is open."""
        with self._tracer.start_as_current_span(
            f"springtide {name}",
            attributes=self._named(attributes),
            record_exception=False,  # its text may show a row
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(self._trace.StatusCode.ERROR)
                raise

    def tasks(self, reports: Sequence[TaskReport]) -> None:
        """Give each subquery a span of its tasks, by the clocks of the machines that they ran on."""
        for name in dict.fromkeys(r.subquery for r in reports):
            own = [r for r in reports if r.subquery == name and r.began > 0]
            if not own:
                continue
            told = {
                "subquery": name,
                "tasks": len(own),
                "rows_in": sum(r.rows_in for r in own),
                "rows_out": sum(r.rows_out for r in own),
            }
            begin, end = min(r.began for r in own), max(r.began + r.wait + r.busy for r in own)
            span = self._tracer.start_span(
                f"springtide {name}", start_time=int(begin * 1e9), attributes=self._named(told)
            )
            span.end(int(end * 1e9))

    def _named(self, attributes: dict[str, Any]) -> dict[str, Any]:
        return {"springtide.query": self._query} | {f"springtide.{name}": v for name, v in attributes.items()}


def spans_of(query: str, traces: bool | TracerProvider) -> Spans:
    """Return what the epochs of a run are reported to: nothing, or OpenTelemetry."""
    if traces is False:
        return Spans()
    return Traces(query, None if traces is True else traces)
