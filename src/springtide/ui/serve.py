"""Serves the page until it is told to stop: on this machine alone, or to anyone who has the token."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

from springtide.query.errors import SpringtideError
from springtide.ui.gallery import Gallery
from springtide.ui.guard import LOOPBACK, Rules

TOKEN = "SPRINGTIDE_UI_TOKEN"
"""The environment variable with the token, for those who want to choose it."""
PORT = 8765
"""The default port of the page, if it is free."""
_LEAST = 16
"""Characters of a token that a person chose."""


@dataclass(frozen=True)
class ServeOptions:
    """How a person wants the page to be served."""

    host: str = LOOPBACK[0]
    port: int | None = None
    """None: the usual one, or any that is free; 0: any that is free."""
    read_only: bool = False


def serve(
    gallery: Gallery, options: ServeOptions, ready: Callable[[str], None], *, until_stdin_ends: bool = False
) -> None:
    """Serve the page until Ctrl-C; `ready` is called with its address, which includes the token if there is one."""
    try:
        import uvicorn

        from springtide.ui.app import application
    except ImportError:
        raise SpringtideError(
            "the page needs Starlette and uvicorn, which are not installed; pip install 'springtide[ui]' installs them"
        ) from None
    with _listening(options) as listener:
        port = listener.getsockname()[1]
        rules = rules_of(options, os.environ.get(TOKEN))
        config = uvicorn.Config(
            application(gallery, rules, lambda: server.should_exit),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        if until_stdin_ends:
            threading.Thread(target=_end_with_stdin, args=(server,), daemon=True).start()
        ready(address(options.host, port, rules.token))
        server.run(sockets=[listener])


def rules_of(options: ServeOptions, token: str | None = None) -> Rules:
    """Return the rules for whom the server answers: this machine, or anyone with the token, which is generated if none was chosen."""
    word = secrets.token_urlsafe(24)
    if is_loopback(options.host):
        return Rules(frozenset({*LOOPBACK, options.host}), word, token or None, options.read_only)
    if token is not None and len(token) < _LEAST:
        raise SpringtideError(
            f"the token in {TOKEN} is too short to keep others out; give at least {_LEAST} characters"
        )
    return Rules(_names(options.host), word, token or secrets.token_urlsafe(24), options.read_only)


def address(host: str, port: int, token: str | None = None) -> str:
    """Write the address for a browser to open.

    >>> address("127.0.0.1", 8765), address("::1", 80), address("0.0.0.0", 8765, "abc")
    ('http://127.0.0.1:8765/', 'http://[::1]:80/', 'http://...:8765/?token=abc')
    """
    name = socket.gethostname() if _is_any(host) else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/{'' if token is None else f'?token={token}'}"


def open_browser(url: str) -> bool:
    """Open the page if there is a desktop; return whether there is one."""
    has_desktop = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(has_desktop) and webbrowser.open(url)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _names(host: str) -> frozenset[str]:
    """Return the names by which a browser may reach this server: its address, or all of this machine's if it listens on all."""
    if not _is_any(host):
        return frozenset({host.lower()})
    own = socket.gethostname()
    try:
        addresses = {str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(own, None)}
    except OSError:
        addresses = set()
    return frozenset({own.lower(), socket.getfqdn().lower(), *LOOPBACK, *addresses})


def _is_any(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _listening(options: ServeOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    ports = [PORT, 0] if options.port is None else [options.port]
    for port in ports:
        try:
            return socket.create_server((options.host, port), family=family)
        except (OSError, OverflowError) as error:
            if port == ports[-1]:
                why = getattr(error, "strerror", None) or str(error)
                raise SpringtideError(
                    f"the page cannot be served on {options.host}:{port}: {why}; give another --port or --host"
                ) from None
    raise AssertionError


def _end_with_stdin(server: object) -> None:
    """End with the process that started this one, however that ends."""
    sys.stdin.read()
    server.should_exit = True  # type: ignore[attr-defined]
