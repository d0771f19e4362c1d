"""Who may ask the page for what."""

from __future__ import annotations

import pytest

from springtide.query.errors import SpringtideError
from springtide.ui.guard import LOOPBACK, WORD, Asked, Rules, judge
from springtide.ui.serve import ServeOptions, rules_of

RULES = Rules(frozenset(LOOPBACK), "the word")
HOST = {"host": "127.0.0.1:8765"}
GOOD = HOST | {
    WORD: "the word",
    "content-type": "application/json",
    "origin": "http://127.0.0.1:8765",
    "sec-fetch-site": "same-origin",
}
COMMANDS = "/api/c/abc/commands"


@pytest.mark.parametrize(
    "headers",
    [
        HOST,
        {"host": "localhost"},
        {"host": "[::1]:8765"},
        HOST | {"sec-fetch-site": "same-origin"},
        HOST | {"sec-fetch-site": "none"},
    ],
)
def test_this_machine_may_look(headers: dict[str, str]) -> None:
    assert judge(Asked("GET", "/api/checkpoints", headers), RULES) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 421),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": "["}, 421),
        (HOST | {"origin": "http://evil.example"}, 403),
        (HOST | {"origin": "null"}, 403),
        (HOST | {"origin": "http://127.0.0.1:1"}, 403),
        (HOST | {"sec-fetch-site": "cross-site"}, 403),
        (HOST | {"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_other_sites_may_not_even_look(headers: dict[str, str], status: int) -> None:
    no = judge(Asked("GET", "/api/checkpoints", headers), RULES)
    assert no is not None
    assert no.status == status


def test_a_link_from_elsewhere_leads_to_the_page_and_no_further() -> None:
    link = HOST | {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert judge(Asked("GET", "/", link), RULES) is None
    assert judge(Asked("GET", "/api/checkpoints", link), RULES) is not None


def test_a_command_must_come_from_the_page() -> None:
    assert judge(Asked("POST", COMMANDS, GOOD), RULES) is None
    for name in (WORD, "content-type"):
        without = {k: v for k, v in GOOD.items() if k != name}
        assert judge(Asked("POST", COMMANDS, without), RULES) is not None, name
    assert judge(Asked("POST", COMMANDS, GOOD | {WORD: "another"}), RULES) is not None
    assert judge(Asked("POST", COMMANDS, GOOD | {"origin": "http://evil.example"}), RULES) is not None


def test_a_page_that_is_read_only_takes_no_command() -> None:
    no = judge(Asked("POST", COMMANDS, GOOD), Rules(frozenset(LOOPBACK), "the word", read_only=True))
    assert no is not None
    assert no.why == "this page is read-only"


def test_with_a_token_nobody_comes_in_without() -> None:
    rules = Rules(frozenset(["example.org"]), "the word", token="secret")
    headers = {"host": "example.org"}
    for given, status in ((None, 401), ("wrong", 401), ("", 401)):
        no = judge(Asked("GET", "/", headers, given), rules)
        assert no is not None
        assert no.status == status
    assert judge(Asked("GET", "/", headers, "secret"), rules) is None


def test_other_machines_need_a_token() -> None:
    assert rules_of(ServeOptions()).token is None
    made = rules_of(ServeOptions(host="0.0.0.0"))
    assert made.token is not None
    assert len(made.token) >= 24
    assert rules_of(ServeOptions(host="10.1.2.3"), "a long enough token").hosts == {"10.1.2.3"}
    with pytest.raises(SpringtideError, match="too short"):
        rules_of(ServeOptions(host="10.1.2.3"), "short")
