"""What may happen to a page: its query ends, its checkpoint goes away, there is much of it, its names are hostile, others ask."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from springtide.elastic.snapshot import Snapshot
from springtide.state.history import History
from springtide.state.savepoints import savepoints
from springtide.ui.guard import LOOPBACK, Rules
from springtide.ui.serve import ServeOptions, rules_of
from tests.page.conftest import PATIENCE, AtWork, Look, Serve, numbers
from tests.page.test_views import picture, view

pytestmark = pytest.mark.browser
expect.set_options(timeout=PATIENCE)

EVIL = "<script>alert(1)<img src>"


def test_a_query_that_ends_while_somebody_looks(look: Look, serve: Serve, at_work: Callable[..., AtWork]) -> None:
    run = at_work(query=numbers(600), last=10)
    page = look(serve(run.root))
    expect(page.locator("#head .pill")).to_have_text("running")
    run.hurry.set()
    run.wait()
    expect(page.locator("#head .pill")).to_have_text("ended with its input")
    view(page, "sources")
    expect(page.locator("main")).to_contain_text("x has ended")


def test_a_checkpoint_that_goes_away(look: Look, serve: Serve, ended: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ended, copy)
    page = look(serve(copy))
    expect(page.locator("#head .pill")).to_have_text("ended with its input")
    shutil.rmtree(copy)
    expect(page.locator("main .note.bad")).to_contain_text("cannot be read any more")
    expect(page.locator("#head .pill")).to_have_text("gone")
    expect(page.locator("main")).to_contain_text("Last decisions")  # what was read last stays
    shutil.copytree(ended, copy)
    expect(page.locator("#head .pill")).to_have_text("ended with its input")


def test_ten_thousand_epochs(look: Look, serve: Serve, ended: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ended, copy)
    many_epochs(copy, 10_000)
    page = look(serve(copy))
    view(page, "time")
    expect(page.locator("main")).to_contain_text("10,000 epochs from")
    picture(page, "ten-thousand-epochs")


def many_epochs(root: Path, count: int) -> None:
    """Give a checkpoint a longer past: its last snapshot again and again, backwards in time."""
    (last,) = History(root).read("snapshots", 1)
    shutil.rmtree(root / "history")
    (root / "history").mkdir()
    text = json.dumps(last, separators=(",", ":"))
    parts = re.split(
        rf'(?<="time":){re.escape(json.dumps(last["time"]))}|(?<="epoch":){last["epoch"]}(?=,)', text, maxsplit=2
    )
    assert len(parts) == 3
    with (root / "history" / "snapshots-000001-000000.jsonl").open("w") as file:
        for i in range(count):
            file.write(f"{parts[0]}{last['time'] - (count - i)}{parts[1]}{i}{parts[2]}\n")
    assert Snapshot.from_json(History(root).read("snapshots", 1)[0]).epoch == count - 1


def test_names_are_never_a_part_of_the_page(look: Look, serve: Serve, at_work: Callable[..., AtWork]) -> None:
    run = at_work(query=numbers(20_000, name=EVIL, step=EVIL, key="<script>alert(2)</script>"), elastic=False)
    page = look(serve(run.root))
    expect(page.locator("h1")).to_have_text(EVIL)
    for name in ("overview", "time", "instances", "buckets", "decisions", "sources", "state", "epochs"):
        view(page, name)
        expect(page.locator("main .card").first).to_be_visible()
    view(page, "state")
    expect(page.locator("main")).to_contain_text("<script>alert(2)</script>")
    assert page.locator("body script, body main img").count() == 0


def test_all_checkpoints_of_a_folder(
    look: Look, serve: Serve, ended: Path, at_work: Callable[..., AtWork], tmp_path: Path
) -> None:
    run = at_work("running", numbers(20_000, name="at-work"))
    shutil.copytree(ended, tmp_path / "some" / "ended")
    page = look(serve(tmp_path))
    expect(page.locator("main")).to_contain_text("2 checkpoints, 1 of them running")
    picture(page, "checkpoints")
    page.get_by_role("link", name="numbers").click()
    expect(page.locator("h1")).to_have_text("numbers")
    page.get_by_label("Springtide", exact=True).click()
    page.get_by_role("link", name="at-work").click()
    expect(page.locator("h1")).to_have_text("at-work")
    assert run.root.exists()


def test_read_only(look: Look, serve: Serve, at_work: Callable[..., AtWork]) -> None:
    rules = replace(rules_of(ServeOptions()), read_only=True)
    address = serve(at_work().root, rules)
    page = look(address)
    expect(page.locator("#head")).to_contain_text("read-only")
    for name in ("instances", "buckets", "epochs"):
        view(page, name)
        expect(page.locator("main .card").first).to_be_visible()
        assert page.get_by_role("button", name=re.compile("Scale|Rebalance|Keep|Stop|Pause")).count() == 0
    key = page.evaluate("location.hash.split('/')[1]")
    status, body = ask(
        address,
        "POST",
        f"/api/c/{key}/commands",
        {"Content-Type": "application/json", "X-Springtide": rules.word},
        {"command": "stop"},
    )
    assert (status, body) == (403, {"error": "this page is read-only"})


# ── without a browser ─────────────────────────────────────────────────────────────────────────────────────────────


def ask(
    address: str, method: str, path: str, headers: dict[str, str] | None = None, body: Any = None
) -> tuple[int, Any]:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers or {})
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text[:1] in (b"{", b"[") else text.decode()
    finally:
        connection.close()


def test_who_is_let_in(serve: Serve, ended: Path) -> None:
    rules = rules_of(ServeOptions())
    address = serve(ended, rules)
    status, found = ask(address, "GET", "/api/checkpoints")
    assert (status, found["checkpoints"][0]["query"]) == (200, "numbers")
    key = found["checkpoints"][0]["key"]
    assert ask(address, "GET", "/", {"Host": "evil.example"})[0] == 421
    assert ask(address, "GET", "/api/checkpoints", {"Origin": "http://evil.example"})[0] == 403
    assert ask(address, "GET", "/api/checkpoints", {"Sec-Fetch-Site": "cross-site"})[0] == 403
    command = f"/api/c/{key}/commands"
    good = {"Content-Type": "application/json", "X-Springtide": rules.word}
    assert ask(address, "POST", command, {"Content-Type": "application/json"}, {"command": "stop"})[0] == 403
    status, answer = ask(address, "POST", command, good, {"command": "stop"})
    assert (status, "is not running" in answer["error"]) == (400, True)
    assert ask(address, "POST", command, good, {"command": "erase"})[0] == 400
    assert ask(address, "POST", command, good, ["nonsense"])[0] == 400
    for path in (
        "/assets/../app.py",
        "/assets/app.py",
        "/api/c/nobody/now",
        f"/api/c/{key}/buckets?subquery=nobody",
        "/etc/passwd",
    ):
        assert ask(address, "GET", path)[0] == 404, path
    for path in (
        f"/api/c/{key}/series?from=x",
        f"/api/c/{key}/state?step=nobody",
        f"/api/c/{key}/commands/stop/..%2f..%2fx",
    ):
        assert ask(address, "GET", path)[0] in (400, 404), path


def test_only_with_the_token(serve: Serve, ended: Path) -> None:
    address = serve(ended, Rules(frozenset(LOOPBACK), "word", token="a-secret-token"))
    assert ask(address, "GET", "/")[0] == 401
    assert ask(address, "GET", "/api/checkpoints")[0] == 401
    assert ask(address, "GET", "/?token=wrong")[0] == 401
    assert ask(address, "GET", "/?token=a-secret-token")[0] == 303
    assert ask(address, "GET", "/api/checkpoints", {"Authorization": "Bearer a-secret-token"})[0] == 200
    assert ask(address, "GET", "/api/checkpoints", {"Cookie": "springtide=a-secret-token"})[0] == 200


def test_a_checkpoint_in_a_store(serve: Serve, ended: Path, s3: str) -> None:
    from springtide.state.copying import backup

    backup(ended, s3)
    address = serve(s3)  # type: ignore[arg-type]
    (found,) = ask(address, "GET", "/api/checkpoints")[1]["checkpoints"]
    assert (found["query"], found["state"]) == ("numbers", "ended")
    assert "hush-hush" not in json.dumps(ask(address, "GET", "/api/checkpoints")[1])
    now = ask(address, "GET", f"/api/c/{found['key']}/now")[1]
    assert (now["epoch"], now["commands"]) == (19, False)
    assert ask(address, "GET", f"/api/c/{found['key']}/state?step=sums")[0] == 200


def test_a_query_whose_checkpoint_is_in_a_store(serve: Serve, at_work: Callable[..., AtWork], s3: str) -> None:
    run = at_work(where=s3)
    rules = rules_of(ServeOptions())
    address = serve(s3, rules)  # type: ignore[arg-type]
    (found,) = ask(address, "GET", "/api/checkpoints")[1]["checkpoints"]
    assert (found["query"], found["state"]) == ("numbers", "running")
    headers = {"Content-Type": "application/json", "X-Springtide": rules.word}
    about = f"/api/c/{found['key']}"
    assert answered(address, headers, about, "scale", {"step": "sums", "instances": 3})["what"] == "2 → 3 instances"
    assert answered(address, headers, about, "savepoint", {"name": "kept"})["status"] == "done"
    assert ask(address, "GET", f"{about}/state?step=sums&limit=5")[1]["columns"]
    assert answered(address, headers, about, "stop", {})["status"] == "done"
    run.wait()
    assert "kept" in savepoints(s3)


def answered(
    address: str, headers: dict[str, str], about: str, command: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Give a command as the page does, and return its last answer."""
    status, sent = ask(address, "POST", f"{about}/commands", headers, {"command": command, "options": options})
    assert status == 202, sent
    answer: dict[str, Any] = sent.get("answer", {"final": False})
    while not answer["final"]:
        answer = ask(address, "GET", f"{about}/commands/{command}/{sent['id']}")[1]
        time.sleep(0.05)
    return answer
