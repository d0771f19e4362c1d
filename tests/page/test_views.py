"""Each view with real data, in a real browser; a picture of each is left in build/page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.page.conftest import PATIENCE, PICTURES, Look, Serve

pytestmark = pytest.mark.browser
expect.set_options(timeout=PATIENCE)

SHOWN = {
    "overview": ["numbers", "ended with its input", "The query", "Last decisions", "sends", "something happened"],
    "time": ["20 epochs", "2 decisions", "Latency", "Backlog", "Utilisation"],
    "instances": ["4 instances of sums", "is the busiest"],
    "buckets": ["256 buckets on 4 instances", "instance 3", "The hottest buckets"],
    "decisions": ["2 → 4 instances", "sums moved", "by hand", "2/256 buckets", "something happened", "Refused"],
    "sources": ["x has ended", "rejected", "its time is", "the time 'ts' is null"],
    "state": ["sums remembers"],
    "epochs": ["20 epochs measured", "state written", "Savepoints"],
}


def view(page: Page, name: str) -> None:
    page.locator("nav a", has_text=NAMES[name]).click()
    expect(page.locator("nav a[aria-current]")).to_have_text(NAMES[name])


NAMES = {
    "overview": "Overview",
    "time": "Over time",
    "instances": "Instances",
    "buckets": "Buckets",
    "decisions": "Decisions",
    "sources": "Sources",
    "state": "State",
    "epochs": "Epochs",
}


def picture(page: Page, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


@pytest.mark.parametrize(
    ("how", "options"),
    [("light", {}), ("dark", {"dark": True}), ("phone", {"width": 380, "height": 800})],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_view(look: Look, serve: Serve, ended: Path, how: str, options: dict[str, Any]) -> None:
    page = look(serve(ended), **options)
    for name, texts in SHOWN.items():
        view(page, name)
        for text in texts:
            expect(page.locator("body")).to_contain_text(text)
        wide = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert wide[0] <= wide[1], f"{name} is wider than the window"
        picture(page, f"{name}-{how}")


def test_every_picture_is_told_in_words_and_every_control_has_a_name(look: Look, serve: Serve, ended: Path) -> None:
    page = look(serve(ended))
    for name in SHOWN:
        view(page, name)
        expect(page.locator("main .card").first).to_be_visible()
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll('main svg[role=img], main svg[role=group], main [role=group], main button, main input, main select, main a')]
                .filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML.slice(0, 80))"""
        )
        assert unnamed == [], name


def test_with_the_keyboard_alone(look: Look, serve: Serve, ended: Path) -> None:
    page = look(serve(ended))
    expect(page.locator("nav a").first).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Buckets":
            break
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("Buckets of sums")
    first = page.locator("[data-bucket='0']")
    first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-bucket='1']")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("[data-bucket='1']")).to_have_attribute("aria-pressed", "true")


def test_a_span_is_chosen_with_the_brush(look: Look, serve: Serve, ended: Path) -> None:
    page = look(serve(ended))
    view(page, "time")
    expect(page.locator("main")).to_contain_text("20 epochs")
    end = page.locator("[role=slider]").first
    end.focus()
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    expect(page.locator("main")).not_to_contain_text("20 epochs")
    page.get_by_role("button", name="all", exact=True).click()
    expect(page.locator("main")).to_contain_text("20 epochs")


def test_the_buckets_of_an_earlier_epoch(look: Look, serve: Serve, ended: Path) -> None:
    page = look(serve(ended))
    view(page, "buckets")
    expect(page.locator("main")).to_contain_text("on 4 instances")
    page.locator("#when").fill("1")
    expect(page.locator("main")).to_contain_text("on 2 instances")
    page.get_by_role("button", name="Now", exact=True).click()
    expect(page.locator("main")).to_contain_text("on 4 instances")


def test_state_is_browsed_by_step_and_key(look: Look, serve: Serve, at_work: Any) -> None:
    page = look(serve(at_work().root))
    view(page, "state")
    expect(page.locator("main")).to_contain_text("sums remembers")
    page.locator("input[name='key:k']").fill("k0")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("main")).to_contain_text("with these keys")
    assert set(page.locator("tbody th").all_inner_texts()) <= {"k0"}  # none, where a window has just been given
    page.get_by_label("Step").select_option("most")
    expect(page.locator("main")).to_contain_text("most remembers")
