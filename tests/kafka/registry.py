"""Schema registries for tests: a small one of our own, in which everything can go wrong, and Apicurio's, the real thing.

Apicurio's comes as one archive from Maven Central (110 MB), and is kept beside the jars of the broker: `scripts/setup.sh kafka` gets it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.kafka import jars
from tests.kafka.broker import _free_ports, _java

VERSION = "3.0.9"  # the last one that runs with Java 17
PATH = f"io/apicurio/apicurio-registry-app/{VERSION}/apicurio-registry-app-{VERSION}-all.tar.gz"
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
FOLDER = Path(sys.prefix) / f"apicurio-{VERSION}"


class Small:
    """A registry in this process."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.answer: int | None = None
        """Answer nothing but this."""
        self.credentials: str | None = None
        handler = type("Handler", (_Handler,), {"registry": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def add(self, schema: Any, kind: str = "AVRO", **more: Any) -> int:
        """Register a schema; the same is the same."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        entry = {"schema": text} | ({"schemaType": kind} if kind != "AVRO" else {}) | more
        if entry not in self.schemas:
            self.schemas.append(entry)
        return self.schemas.index(entry) + 1

    def password(self, user: str, password: str) -> None:
        """Let in who has it."""
        self.credentials = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    registry: Small

    def do_GET(self) -> None:
        path, known = self.path.partition("?")[0], self.registry.schemas
        number = int(path.rpartition("/")[2])
        self._say(known[number - 1] if 0 < number <= len(known) else None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._say({"id": self.registry.add(body["schema"], body.get("schemaType", "AVRO"))})

    def _say(self, found: dict[str, Any] | None) -> None:
        registry = self.registry
        registry.asked.append(self.path)
        code = 200 if found is not None else 404
        if registry.credentials not in (None, self.headers.get("Authorization")):
            code = 401
        code = registry.answer or code
        content = json.dumps(found if code == 200 else {"error_code": code, "message": f"no: {code}"}).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def absent() -> str | None:
    """Why the real registry cannot be had; None if it can."""
    return None if _jar() is not None and _java() else "no schema registry here: run scripts/setup.sh kafka"


def _jar() -> Path | None:
    return next(FOLDER.glob("*-runner.jar"), None)


@contextmanager
def apicurio() -> Iterator[str]:
    """The real registry; where it is, as Confluent's clients ask it."""
    (port,) = _free_ports(1)
    jar, java = _jar(), _java()
    assert jar is not None
    assert java is not None
    options = ["-Xmx300m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    env = {**os.environ, "QUARKUS_HTTP_PORT": str(port), "QUARKUS_HTTP_HOST": "127.0.0.1"}
    process = subprocess.Popen(
        [java, *options, "-jar", jar.name],
        cwd=FOLDER,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url, until = f"http://127.0.0.1:{port}/apis/ccompat/v7", time.monotonic() + 300
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/subjects", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("the schema registry did not start") from None
                time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Get the real registry."""
    if _jar() is not None:
        return
    print("set-up: getting a schema registry for the tests (110 MB)", file=sys.stderr)
    try:
        with urllib.request.urlopen(f"{jars.CENTRAL}/{PATH}", timeout=300) as answer:
            content = answer.read()
        if hashlib.sha256(content).hexdigest() != SHA256:
            raise OSError(f"{PATH} is not what it should be")
        archive = FOLDER.with_suffix(".tar.gz")
        archive.write_bytes(content)
        part = FOLDER.with_suffix(".part")
        with tarfile.open(archive) as files:
            files.extractall(part, filter="data")
        part.rename(FOLDER)
        archive.unlink()
    except OSError as error:
        print(f"set-up: no schema registry, so tests that need one are skipped: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
