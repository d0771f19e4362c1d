"""Builds the documentation site: `make docs`, or `python -m scripts.site [FOLDER]`; build/site without one.

Each version has a folder of its own, FOLDER/0.1.0/, and leaves those of other versions alone. FOLDER/index.html leads to the newest and
FOLDER/versions.html lists them all; so the whole folder can be put on any web server as it is. Warnings are errors.
"""

from __future__ import annotations

import html
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]


def build(folder: Path) -> Path:
    """Build the site of this version below a folder; return where it is."""
    from sphinx.cmd.build import build_main

    import springtide

    target = folder / springtide.__version__
    options = ["-n", "-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / ".doctrees")]
    if build_main([*options, str(ROOT / "docs"), str(target)]) != 0:
        raise SystemExit("the documentation has warnings: they are above")
    _front(folder)
    return target


def _front(folder: Path) -> None:
    """Write what leads to the versions."""
    versions = sorted(filter(_is_version, (p.parent.name for p in folder.glob("*/index.html"))), key=Version)[::-1]
    newest = html.escape(versions[0])
    (folder / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>Springtide</title><meta http-equiv="refresh" content="0; url={newest}/index.html">'
        f'<p><a href="{newest}/index.html">Springtide {newest}</a></p>\n'
    )
    listed = "".join(f'<li><a href="{v}/index.html">{v}</a></li>' for v in map(html.escape, versions))
    (folder / "versions.html").write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Springtide: all versions</title><h1>All versions</h1><ul>{listed}</ul></html>\n'
    )


def _is_version(name: str) -> bool:
    try:
        Version(name)
    except InvalidVersion:
        return False
    return True


if __name__ == "__main__":
    place = build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site")
    print(place / "index.html")
