"""The page as an ASGI application: a few addresses, each of which returns plain JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from springtide.query.errors import SpringtideError
from springtide.ui.commands import answer_to, execute
from springtide.ui.gallery import Gallery
from springtide.ui.guard import COOKIE, HEADERS, Asked, Rules, judge, same
from springtide.ui.live import Live, encoded
from springtide.ui.state_table import browse
from springtide.ui.watching import Watched

_ASSETS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_LONGEST = 1 << 20
_POINTS = 2_000
_ROWS = 500

Answer = Callable[[Request], Awaitable[Response]]


def application(gallery: Gallery, rules: Rules, stopping: Callable[[], bool] = lambda: False) -> ASGIApp:
    """Make the application that shows these checkpoints to those whom the rules admit; pages stop listening when the server is `stopping`."""
    lives: dict[str, Live] = {}

    def watched(request: Request) -> Watched:
        found = gallery.get(request.path_params["key"])
        if found is None:
            raise _Missing("there is no such checkpoint")
        if found.version == 0:  # nobody has looked at it yet
            found.refresh()
        return found

    async def index(request: Request) -> Response:
        given = request.query_params.get("token")
        if rules.token is not None and same(given, rules.token):  # the token goes from the address into a cookie
            response: Response = RedirectResponse("/", 303)
            response.set_cookie(COOKIE, rules.token, httponly=True, samesite="lax", path="/")
            return response
        text = _asset("index.html").decode().replace("{{word}}", rules.word)
        return Response(text.replace("{{read_only}}", "yes" if rules.read_only else "no"), media_type="text/html")

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        kind = _ASSETS.get(f".{name.rpartition('.')[2]}")
        if kind is None or name not in _names():
            raise _Missing("there is no such file")
        return Response(_asset(name), media_type=kind)

    async def checkpoints(request: Request) -> Response:
        return _json(
            {"title": gallery.title, "many": gallery.folder is not None, "checkpoints": await _apart(gallery.list)}
        )

    async def events(request: Request) -> Response:
        found, key = await _apart(lambda: watched(request)), request.path_params["key"]
        live = lives.setdefault(key, Live(found, stopping))
        return StreamingResponse(live.follow(), media_type="text/event-stream")

    def reading(read: Callable[[Watched, Request], Any]) -> Answer:
        async def answer(request: Request) -> Response:
            return _json(await _apart(lambda: read(watched(request), request)))

        return answer

    async def command(request: Request) -> Response:
        given = await request.json() if int(request.headers.get("content-length") or _LONGEST) < _LONGEST else None
        if not isinstance(given, dict) or not isinstance(given.get("command"), str):
            raise SpringtideError("name a command")
        options = given.get("options")
        options = options if isinstance(options, dict) else {}
        return _json(await _apart(lambda: execute(watched(request).checkpoint, given["command"], options)), 202)

    routes = [
        Route("/", index),
        Route("/assets/{name}", asset),
        Route("/api/checkpoints", checkpoints),
        Route("/api/c/{key}/events", events),
        Route("/api/c/{key}/now", reading(lambda w, _: w.now())),
        Route("/api/c/{key}/series", reading(_series)),
        Route("/api/c/{key}/decisions", reading(lambda w, _: w.decisions())),
        Route("/api/c/{key}/epochs", reading(lambda w, _: w.epochs())),
        Route("/api/c/{key}/buckets", reading(_buckets)),
        Route("/api/c/{key}/hottest", reading(_hottest)),
        Route("/api/c/{key}/state", reading(_state)),
        Route("/api/c/{key}/refused", reading(lambda w, _: w.refused())),
        Route("/api/c/{key}/commands", command, methods=["POST"]),
        Route("/api/c/{key}/commands/{name}/{id}", reading(_answer)),
    ]
    wrong: dict[Any, Any] = {SpringtideError: _refused, _Missing: _missing, ValueError: _refused}
    return _Guarded(Starlette(routes=routes, exception_handlers=wrong), rules)


class _Missing(Exception):
    pass


class _Guarded:
    """Admits requests by the rules, and tells browsers how careful to be."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        asked = Asked(request.method, request.url.path, dict(request.headers), _token(request))

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                extra = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                message = message | {"headers": [*message["headers"], *extra]}
            await send(message)

        no = judge(asked, self._rules)
        if no is None:
            await self._app(scope, receive, sending)
        else:
            await _json({"error": no.why}, no.status)(scope, receive, sending)


def _token(request: Request) -> str | None:
    bearer: str = request.headers.get("authorization", "")
    if bearer.startswith("Bearer "):
        return bearer.removeprefix("Bearer ").strip()
    given: str | None = request.query_params.get("token") if request.url.path == "/" else None
    kept: str | None = request.cookies.get(COOKIE)
    return given or kept


def _series(watched: Watched, request: Request) -> Any:
    most = min(int(request.query_params.get("most", "400")), _POINTS)
    return watched.series(_moment(request, "from"), _moment(request, "to"), max(2, most))


def _buckets(watched: Watched, request: Request) -> Any:
    epoch = request.query_params.get("epoch")
    found = watched.buckets(request.query_params.get("subquery", ""), int(epoch) if epoch else None)
    if found is None:
        raise _Missing("there are no measurements of buckets for this subquery")
    return found


def _hottest(watched: Watched, request: Request) -> Any:
    name = request.query_params.get("subquery", "")
    return watched.hottest(name, _moment(request, "from"), _moment(request, "to"))


def _state(watched: Watched, request: Request) -> Any:
    given = request.query_params
    keys = [key for key in given.getlist("key") if key]
    limit = max(1, min(int(given.get("limit", "50")), _ROWS))
    return browse(watched.checkpoint, given.get("step", ""), keys, given.get("kind") or None, limit)


def _answer(watched: Watched, request: Request) -> Any:
    return answer_to(watched.checkpoint, request.path_params["name"], request.path_params["id"])


def _moment(request: Request, name: str) -> float | None:
    given = request.query_params.get(name)
    return float(given) if given else None


async def _apart(read: Callable[[], Any]) -> Any:
    """Read files in another thread, so that pages that wait for events are not held up."""
    return await asyncio.to_thread(read)


def _json(value: Any, status: int = 200) -> Response:
    return Response(encoded(value), status, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    return _json({"error": str(error) or "the request makes no sense"}, 400)


async def _missing(request: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 404)


def _asset(name: str) -> bytes:
    return (files("springtide.ui") / "assets" / name).read_bytes()


def _names() -> set[str]:
    return {entry.name for entry in (files("springtide.ui") / "assets").iterdir()}
