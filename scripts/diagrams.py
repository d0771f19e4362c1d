"""Draws the Mermaid diagrams of the documents as SVG, for the site: `python -m scripts.diagrams`.

The site shows pictures and runs no program for them. Mermaid is JavaScript: `npm pack` brings it, once, and a browser runs it here. Only
diagrams whose text is new are drawn; pictures of diagrams that are gone are removed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_site"))

from pages import DIAGRAMS, DOCS, diagram_of  # noqa: E402


def sources() -> dict[Path, str]:
    """Picture → the diagram that it is of."""
    texts = [page.read_text("utf-8") for page in sorted(DOCS.rglob("*.md"))]
    found = [s for text in texts for s in re.findall(r"^```mermaid\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)]
    return {diagram_of(source): source for source in found}


def mermaid() -> Path:
    """The program that draws."""
    folder = ROOT / "build" / "mermaid"
    program = folder / "package" / "dist" / "mermaid.min.js"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(
            ["npm", "pack", "--silent", "mermaid@11"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
        )
        with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
            archive.extract(str(program.relative_to(folder)), folder, filter="data")
    return program


def main() -> None:
    from playwright.sync_api import sync_playwright

    wanted = sources()
    DIAGRAMS.mkdir(exist_ok=True)
    for picture in set(DIAGRAMS.glob("*.svg")) - set(wanted):
        picture.unlink()
    browser_program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_program, args=["--no-sandbox"])
        page = browser.new_page()
        page.add_script_tag(path=mermaid())
        page.evaluate(
            "mermaid.initialize({startOnLoad: false, theme: 'neutral', htmlLabels: false, flowchart: {htmlLabels: false}})"
        )
        for picture, source in wanted.items():
            if not picture.exists():
                drawn = page.evaluate("async (source) => (await mermaid.render('diagram', source)).svg", source)
                picture.write_text(drawn + "\n", "utf-8")
                print(picture)
        browser.close()


if __name__ == "__main__":
    main()
