"""Who may ask the page for what. Pure.

Browsers let any site send requests to this one, with its cookies, and a site may point its own name to this machine. So a request is
refused if its `Host` is not a name of this server or if another site made it, and a request that changes anything must carry a word that only the page itself knows.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

COOKIE = "springtide"
WORD = "x-springtide"
"""The header with the word that only the page knows."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}
"""What every answer says to the browser: load nothing from elsewhere, run no script from text, show it in no frame, keep it nowhere."""


@dataclass(frozen=True)
class Rules:
    """Whom this server answers."""

    hosts: frozenset[str]
    """Its names, without ports."""
    word: str
    """What only the page knows."""
    token: str | None = None
    """The token that a person must know; None on the loopback, which only this machine can reach."""
    read_only: bool = False


class Asked(NamedTuple):
    """A request, as far as it matters here."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case name."""
    token: str | None = None
    """From a cookie, the address or an `Authorization` header."""


class No(NamedTuple):
    """Raised when a request is refused."""

    status: int
    why: str


def judge(asked: Asked, rules: Rules) -> No | None:
    """Return why a request is refused; None if it is not.

    >>> rules = Rules(frozenset(LOOPBACK), "word")
    >>> judge(Asked("GET", "/", {"host": "127.0.0.1:8080"}), rules)
    >>> judge(Asked("GET", "/", {"host": "evil.example"}), rules).why
    'this server has no such name'
    >>> judge(Asked("POST", "/api/c/1/commands", {"host": "localhost", "origin": "http://evil.example"}), rules).status
    403
    """
    host = host_of(asked.headers.get("host", ""))
    if host not in rules.hosts:
        return No(421, "this server has no such name")
    if _is_from_elsewhere(asked, rules):
        return No(403, "requests from other sites are refused")
    if rules.token is not None and not same(asked.token, rules.token):
        return No(401, "open the address that the server printed: it has the token in it")
    if asked.method not in ("GET", "HEAD"):
        return _judge_change(asked, rules)
    return None


def _is_from_elsewhere(asked: Asked, rules: Rules) -> bool:
    headers = asked.headers
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        return True
    site = headers.get("sec-fetch-site", "none")
    if site in ("same-origin", "none"):
        return False
    # Somebody followed a link to the page, which shows the page to that person and to nobody else.
    return not (asked.method == "GET" and asked.path == "/" and headers.get("sec-fetch-mode") == "navigate")


def _judge_change(asked: Asked, rules: Rules) -> No | None:
    if rules.read_only:
        return No(403, "this page is read-only")
    if not same(asked.headers.get(WORD), rules.word):
        return No(403, "the page is out of date: load it again")
    if asked.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return No(415, "commands are JSON")
    return None


def same(given: str | None, wanted: str) -> bool:
    """Compare secrets in a time that reveals nothing about them."""
    return given is not None and hmac.compare_digest(given.encode(), wanted.encode())


def host_of(header: str) -> str:
    """Return the name in a `Host` header, without its port.

    >>> host_of("localhost:8080"), host_of("[::1]:8080"), host_of("10.0.0.7")
    ('localhost', '::1', '10.0.0.7')
    """
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
