"""The names of a checkpoint are made in one module; nothing else spells them."""

from __future__ import annotations

import re
from pathlib import Path

import springtide
from springtide.state import names

ROOT = Path(springtide.__file__).parent
FOLDERS = "|".join(
    re.escape(value)
    for name, value in vars(names).items()
    if name.isupper() and isinstance(value, str) and value[0].isalpha()
)
SPELT = re.compile(
    rf"""/\s*f?["'](?:{FOLDERS})["'/]          # root / "state"
      | \((?:f?["'])(?:{FOLDERS})/            # glob("state/…")
      | =\s*f?["'](?:{FOLDERS})/              # "outbox/…"
      | \b(?:list|files|glob|rglob|exists|read|fetch|bring|sizes|under)\(f?["'](?:{FOLDERS})["'/]
      | springtide\.json["']""",
    re.VERBOSE,
)
OTHERS = {"state/names.py"}


def test_nothing_else_spells_them() -> None:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.strip()
            if file not in OTHERS and not code.startswith((">>>", "#", '"', "'")) and SPELT.search(code):
                found.append(f"{file}:{number}: {code}")
    assert not found, "make it in springtide/state/names.py:\n" + "\n".join(found)


def test_the_page_about_checkpoints_has_all_of_them() -> None:
    page = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()
    told = page.partition("## A checkpoint")[2].partition("```")[2].partition("```")[0]
    inside = {names.MARKER, names.LOCK, names.MANIFESTS, names.STATE, names.LEDGERS, names.BUFFER, names.OUTBOX}
    inside |= {
        names.PUBLISHED,
        names.SAVEPOINTS,
        names.CONTROL,
        names.RUNNING,
        names.HISTORY,
        names.SPARK,
        names.SPARK_LOG,
    }
    assert not [name for name in sorted(inside) if not re.search(rf"^{re.escape(name)}\b", told, re.MULTILINE)]
