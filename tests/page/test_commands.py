"""Each command against a running query: it asks first, shows the answer to that very command, and what it cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from springtide.state.checkpoint import Checkpoint
from springtide.state.savepoints import savepoints
from tests.page.conftest import PATIENCE, AtWork, Look, Serve
from tests.page.test_views import picture, view

pytestmark = pytest.mark.browser
expect.set_options(timeout=PATIENCE)


def instances(root: Path, name: str) -> int:
    manifest = Checkpoint(root).latest()
    assert manifest is not None
    return manifest.maps[name].instances


def confirm(page: Page, label: str, status: str = "done") -> str:
    page.locator("dialog button[value=yes]", has_text=label).click()
    answer = page.locator(f"dialog [data-status={status}]")
    expect(answer).to_be_visible()
    text = answer.inner_text()
    page.locator("dialog").get_by_role("button", name="Close").click()
    expect(page.locator("dialog")).to_be_hidden()
    return text


def test_every_command(look: Look, serve: Serve, at_work: Callable[..., AtWork]) -> None:
    run = at_work()
    page = look(serve(run.root))

    view(page, "instances")
    card = page.locator("section[aria-label=sums]")
    card.get_by_role("button", name="Scale").click()
    expect(page.locator("dialog")).to_contain_text("sums has 2 instances")
    page.locator("dialog").get_by_role("button", name="Cancel").click()
    assert instances(run.root, "sums") == 2, "it asks first"
    card.get_by_role("button", name="Scale").click()
    page.get_by_label("Instances").last.fill("3")
    page.locator("dialog button[value=yes]").click()
    expect(page.locator("dialog [data-status=done]")).to_contain_text("sums: 2 → 3 instances, since epoch")
    expect(page.locator("dialog [aria-label='What it cost']")).to_contain_text("more than usual")
    picture(page, "command")
    page.locator("dialog").get_by_role("button", name="Close").click()
    assert instances(run.root, "sums") == 3
    expect(card).to_contain_text("3 instances of sums")

    view(page, "buckets")
    expect(page.locator("main")).to_contain_text("on 3 instances")
    page.locator("[data-bucket='5']").click()
    page.get_by_role("button", name="Move 1 bucket").click()
    page.get_by_label("To instance").select_option(
        "1" if Checkpoint(run.root).latest().maps["sums"].owners[5] != 1 else "0"
    )  # type: ignore[union-attr]
    assert "sums: moved, since epoch" in confirm(page, "Move")
    page.get_by_role("button", name="Rebalance").click()
    assert "sums" in confirm(page, "Rebalance")

    page.get_by_role("button", name="Pause").click()
    assert "paused" in confirm(page, "Pause")
    expect(page.locator("#head .pill.paused")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    assert "goes on" in confirm(page, "Resume")
    expect(page.locator("#head .pill.paused")).to_be_hidden()

    page.get_by_role("button", name="Savepoint").click()
    page.get_by_label("Name").fill("before-lunch")
    assert "savepoint before-lunch is kept" in confirm(page, "Keep")
    assert list(savepoints(run.root)) == ["before-lunch"]
    page.get_by_role("button", name="Savepoint").click()
    page.get_by_label("Name").fill("before-lunch")
    assert "has a savepoint before-lunch already" in confirm(page, "Keep", "refused")
    view(page, "epochs")
    expect(page.locator("main")).to_contain_text("before-lunch")

    view(page, "decisions")
    expect(page.locator("main")).to_contain_text("2 → 3 instances")
    page.get_by_role("button", name="Stop").click()
    assert "numbers has stopped after epoch" in confirm(page, "Stop")
    run.wait()
    expect(page.locator("#head .pill")).to_have_text("stopped")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)


def test_a_command_that_makes_no_sense_is_refused_with_the_reason(
    look: Look, serve: Serve, at_work: Callable[..., AtWork]
) -> None:
    page = look(serve(at_work().root))
    view(page, "instances")
    page.locator("section[aria-label=sums]").get_by_role("button", name="Scale").click()
    page.locator("dialog form").evaluate("form => { form.noValidate = true }")
    page.get_by_label("Instances").last.fill("0")
    page.locator("dialog button[value=yes]").click()
    expect(page.locator("dialog [data-status=refused]")).to_contain_text("instances must be a whole number")


def test_two_people_at_once(look: Look, serve: Serve, at_work: Callable[..., AtWork]) -> None:
    run = at_work()
    address = serve(run.root)
    ann, bob = look(address), look(address)
    for person in (ann, bob):
        view(person, "instances")
        person.locator("section[aria-label=sums]").get_by_role("button", name="Scale").click()
    for person, wanted in ((ann, "3"), (bob, "4")):
        person.get_by_label("Instances").last.fill(wanted)
    ann.locator("dialog button[value=yes]").click()
    expect(ann.locator("dialog [data-status=done]")).to_contain_text("2 → 3 instances")
    bob.locator("dialog button[value=yes]").click()
    expect(bob.locator("dialog [data-status=done]")).to_contain_text("3 → 4 instances")
    expect(ann.locator("dialog")).to_contain_text("2 → 3 instances")  # each has the answer to their own
    for person in (ann, bob):
        person.locator("dialog").get_by_role("button", name="Close").click()
        expect(person.locator("section[aria-label=sums]")).to_contain_text("4 instances of sums")


@pytest.mark.spark
def test_on_spark(spark: object, look: Look, serve: Serve, tmp_path: Path) -> None:
    import springtide as st

    records = st.call_records(callers=50, per_second=10)
    calls = st.source("calls", st.generate(records, rate=500), ts="ts")
    sums = calls.aggregate(by="src", window=st.tumbling("1m"), n=st.count(), name="sums")
    query = st.Query("on-spark", sums.to(st.memory_sink()))
    run = query.start(spark, checkpoint=tmp_path / "ckpt", instances=1)  # type: ignore[arg-type]
    try:
        page = look(serve(tmp_path / "ckpt"))
        view(page, "instances")
        page.locator("section[aria-label=sums]").get_by_role("button", name="Scale").click()
        page.get_by_label("Instances").last.fill("2")
        page.locator("dialog button[value=yes]").click()
        expect(page.locator("dialog [data-status=done]")).to_contain_text("sums: 1 → 2 instances")
        page.locator("dialog").get_by_role("button", name="Close").click()
        page.get_by_role("button", name="Stop").click()
        assert "on-spark has stopped" in confirm(page, "Stop")
    finally:
        run.stop()
