"""A plan as a picture: a box for each subquery with its steps, and arrows for what goes between them. Our own SVG, which loads nothing from outside.

┌ calls, stateless ┐          ┌ heavy, 256 buckets ┐
│ calls            │ hash(src)│ heavy              │
│ duration         │─────────→│ sink               │
└──────────────────┘          └────────────────────┘
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from springtide.compiler.mermaid import label_of, title_of
from springtide.compiler.plan import Plan, Subquery

_WIDE, _GAP, _BETWEEN, _EDGE = 260, 130, 26, 16
"""In pixels: the width of a box, the gap between columns, the gap between boxes in a column, and the margin around it all."""
_HEAD, _STEP = 30, 36
_LONGEST = 38
_INK, _PALE, _LINE, _STATEFUL, _STATELESS = "#1f2937", "#6b7280", "#94a3b8", "#e0edff", "#f3f4f6"


@dataclass(frozen=True)
class _Box:
    subquery: Subquery
    x: int
    y: int

    @property
    def high(self) -> int:
        return _HEAD + _STEP * len(self.subquery.steps) + 8

    def middle(self, step: str | None) -> int:
        """Return the y coordinate of the middle of a step, or of the box itself if there is no such step."""
        if step is None or step not in self.subquery.steps:
            return self.y + self.high // 2
        return self.y + _HEAD + _STEP * self.subquery.steps.index(step) + _STEP // 2


def svg(plan: Plan) -> str:
    """Return a plan as SVG.

    >>> svg(st.Query("copy", calls.to(st.memory_sink())).plan()).startswith("<svg ")
    True
    """
    boxes = _placed(plan)
    width = max(b.x + _WIDE for b in boxes.values()) + _EDGE
    height = max(b.y + b.high for b in boxes.values()) + _EDGE
    said = ", ".join(f"{e.origin} to {e.target}" for e in plan.exchanges) or "no exchange"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f"<title>The query {escape(plan.graph.name)}: {escape(said)}</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        f'<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="{_LINE}"/></marker></defs>',
        *(_drawn(plan, box) for box in boxes.values()),
        *(_arrow(plan, boxes, i) for i in range(len(plan.exchanges))),
        "</svg>",
    ]
    return "".join(parts)


def _placed(plan: Plan) -> dict[str, _Box]:
    """Place each subquery in the column after those that it takes rows from."""
    column = {q.name: 0 for q in plan.subqueries}
    for _ in plan.subqueries:
        for e in plan.exchanges:
            column[e.target] = max(column[e.target], column[e.origin] + 1)
    boxes, below = dict[str, _Box](), dict[int, int]()
    for q in plan.subqueries:
        box = _Box(q, _EDGE + column[q.name] * (_WIDE + _GAP), below.get(column[q.name], _EDGE))
        boxes[q.name], below[column[q.name]] = box, box.y + box.high + _BETWEEN
    return boxes


def _drawn(plan: Plan, box: _Box) -> str:
    q, x, y = box.subquery, box.x, box.y
    fill = _STATELESS if q.head is None else _STATEFUL
    parts = [
        f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{box.high}" rx="8" fill="{fill}" stroke="{_LINE}"/>',
        _text(x + 12, y + 20, title_of(q), _PALE),
    ]
    for i, name in enumerate(q.steps):
        top, step = y + _HEAD + _STEP * i, plan.step(name)
        what = "merge of rankings" if q.merges and name == q.head else step.describe()
        parts += [
            _text(x + 12, top + 14, name, _INK, bold=True),
            _text(x + 12, top + 29, f"{step.kind}: {what}", _PALE),
        ]
    return "".join(parts)


def _arrow(plan: Plan, boxes: dict[str, _Box], number: int) -> str:
    exchange = plan.exchanges[number]
    origin, target = boxes[exchange.origin], boxes[exchange.target]
    x, y = origin.x + _WIDE, origin.middle(exchange.step)
    to_x, to_y = target.x, target.middle(target.subquery.head) + 10 * (exchange.side if exchange.side else 0)
    bend = max(40, (to_x - x) // 2)
    path = f'<path d="M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x - 2} {to_y}" fill="none" stroke="{_LINE}" stroke-width="2" marker-end="url(#to)"/>'
    parts = label_of(plan, exchange).split(", ")
    at = (x + to_x) // 2
    label = "".join(
        _text(at, (y + to_y) // 2 - 8 - 14 * (len(parts) - 1 - i), part, _INK, middle=True)
        for i, part in enumerate(parts)
    )
    return path + label


def _text(x: int, y: int, text: str, ink: str, *, bold: bool = False, middle: bool = False) -> str:
    short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    full = f"<title>{escape(text)}</title>" if short != text else ""
    weight, anchor = ' font-weight="600"' if bold else "", ' text-anchor="middle"' if middle else ""
    return f'<text x="{x}" y="{y}" fill="{ink}"{weight}{anchor}>{escape(short)}{full}</text>'
