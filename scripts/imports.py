"""Which module imports which; the picture of it is drawn by `python -m scripts.imports`.

It shows the rooms of `src/springtide`, each above all that it imports. An arrow that follows from two others is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
PICTURE = ROOT / "docs" / "pictures" / "rooms.svg"


def imports(source: str, module: str, *, is_package: bool, modules: set[str]) -> Iterator[str]:
    """The names of the modules that a source text imports, relative ones made absolute."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:  # `from a import b` imports the module a.b if there is one, else a
                yield f"{origin}.{alias.name}" if f"{origin}.{alias.name}" in modules else origin


@cache
def all_imports() -> tuple[tuple[str, str], ...]:
    """(module, what it imports) for every import statement of springtide."""
    files = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return tuple(
        (module, imported)
        for module, path in files.items()
        for imported in imports(
            path.read_text("utf-8"), module, is_package=path.name == "__init__.py", modules=set(files)
        )
    )


def room_of(module: str) -> str:
    """The room of a module in the picture: its package, but the reference is a room of its own."""
    parts = module.split(".")
    return "reference" if parts[1:3] == ["runtime", "reference"] else parts[1]


def edges() -> dict[str, set[str]]:
    """Room → the rooms that it imports; imports of the reference by the package around it are left out."""
    found: dict[str, set[str]] = {}
    for module, imported in all_imports():
        if module.startswith("springtide.") and imported.startswith("springtide."):
            room, other = room_of(module), room_of(imported)
            found.setdefault(room, set())
            if room != other:
                found[room].add(other)
                found.setdefault(other, set())
    return found


def levels(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """How high each room stands: above all that it imports."""

    @cache
    def level(room: str) -> int:
        return 1 + max((level(other) for other in graph[room]), default=-1)

    return {room: level(room) for room in graph}


def needed(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The arrows that do not follow from others."""

    @cache
    def below(room: str) -> frozenset[str]:
        return frozenset(graph[room]).union(*(below(other) for other in graph[room]))

    return {
        room: {one for one in others if not any(one in below(other) for other in others)}
        for room, others in graph.items()
    }


def said(graph: Mapping[str, set[str]]) -> str:
    """The arrows in one line: it is written into the picture, so that a test can tell whether it is out of date."""
    return "; ".join(f"{room}: {' '.join(sorted(others))}" for room, others in sorted(graph.items()))


def places(graph: Mapping[str, set[str]]) -> dict[str, tuple[float, float]]:
    """Where each room stands: in the row of its level, near the rooms that it has arrows to and from."""
    height, arrows = levels(graph), needed(graph)
    rows = [sorted(r for r in graph if height[r] == n) for n in range(1 + max(height.values()))]
    x = {room: (i + 0.5) / len(row) for row in rows for i, room in enumerate(row)}

    def middle(room: str) -> float:
        near = [*arrows[room], *(other for other in arrows if room in arrows[other])]
        return sum(x[other] for other in near) / len(near)

    for row in [*rows, *reversed(rows)] * 4:
        x |= {room: (i + 0.5) / len(row) for i, room in enumerate(sorted(row, key=middle))}
    return {room: (x[room], height[room]) for room in graph}


def draw() -> None:
    """Write the picture."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "rooms", "svg.fonttype": "none"}
    from matplotlib import pyplot

    graph = edges()
    place = places(graph)
    rows = 1 + max(y for _, y in place.values())
    figure, axes = pyplot.subplots(figsize=(9, 1.1 * rows))
    arrow = {"arrowstyle": "-|>", "color": "#7a8a99", "shrinkA": 0, "shrinkB": 0}
    for room, others in sorted(needed(graph).items()):
        for other in sorted(others):
            (x, y), (to_x, to_y) = place[room], place[other]
            axes.annotate("", xy=(to_x, to_y + 0.22), xytext=(x, y - 0.22), arrowprops=arrow)
    for room, (x, y) in place.items():
        box = {"boxstyle": "round,pad=0.4", "facecolor": "#eef3f7", "edgecolor": "#3b5568"}
        axes.text(x, y, room, ha="center", va="center", bbox=box, family="monospace", fontsize=10)
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.5, rows - 0.5)
    axes.axis("off")
    figure.savefig(PICTURE, metadata={"Date": None, "Description": said(graph)}, bbox_inches="tight")
    pyplot.close(figure)


if __name__ == "__main__":
    draw()
