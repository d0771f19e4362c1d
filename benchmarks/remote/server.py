"""An S3-compatible server of its own process: versitygw over a folder, which is as fast as the disk, or moto where there is no Go to build it with.

versitygw is looked for on the path and in build/bench/bin; else `go install` builds it there, once. It knows conditional writes (If-None-Match), which checkpoints need.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import DATA, say

VERSION = "v1.8.0"
_BIN = DATA / "bin"
_KEY, _SECRET = "bench", "bench-secret"
_BUCKET = "bench"
_MOTO = """
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", port={port}, verbose=False)
server.start()
input()
"""


@dataclass(frozen=True)
class Server:
    """A server that runs, with one bucket."""

    name: str
    port: int
    folder: Path | None
    """Where the files of the bucket are, as they are called in it; None where they are in its memory."""

    @property
    def options(self) -> dict[str, str]:
        """What `storage_options` are to be."""
        endpoint = f"127.0.0.1:{self.port}"
        return {"endpoint_override": endpoint, "scheme": "http", "access_key": _KEY, "secret_key": _SECRET}

    def at(self, path: str) -> str:
        """Return the address of a folder, with all that is needed to reach it."""
        return f"s3://{_BUCKET}/{path}?" + "&".join(f"{name}={value}" for name, value in self.options.items())

    def for_spark(self) -> dict[str, str]:
        """Return the settings by which Spark's own S3 client (s3a) reaches it."""
        return {
            "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{self.port}",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.access.key": _KEY,
            "spark.hadoop.fs.s3a.secret.key": _SECRET,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }

    def for_s3a(self, path: str) -> str:
        """Return the address of a folder for it."""
        return f"s3a://{_BUCKET}/{path}"


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """Start a server that keeps its files in a folder; it ends whatever happens."""
    files = folder / "s3"
    (files / _BUCKET).mkdir(parents=True, exist_ok=True)
    port, program = _free(), _versitygw()
    environment = os.environ | {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET}
    if program is not None:
        command = [str(program), "--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive", "posix"]
        command += [*_where_metadata_goes(files, folder), str(files)]
    else:
        command = [sys.executable, "-c", _MOTO.format(port=port)]
    log = folder / "s3.log"
    with (
        open(log, "wb") as said,
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=said, stderr=said) as process,
    ):
        try:
            _wait(process, port, log)
            found = Server(program.name if program else "moto", port, files / _BUCKET if program else None)
            if program is None:
                _make_bucket(found)
            yield found
        finally:
            process.kill()


def _where_metadata_goes(files: Path, folder: Path) -> list[str]:
    try:
        os.setxattr(files, "user.springtide", b"1")
        return []
    except OSError:
        (folder / "metadata").mkdir(exist_ok=True)
        return ["--sidecar", str(folder / "metadata")]


def _versitygw() -> Path | None:
    found = shutil.which("versitygw") or shutil.which("versitygw", path=str(_BIN))
    if found is None and shutil.which("go") is not None:
        say("building versitygw, once")
        package = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
        built = subprocess.run(
            ["go", "install", package], env=os.environ | {"GOBIN": str(_BIN)}, capture_output=True, check=False
        )
        if built.returncode:
            say(f"it could not be built; moto stands in: {built.stderr.decode(errors='replace')[-300:]}")
        found = shutil.which("versitygw", path=str(_BIN))
    return Path(found) if found else None


def _make_bucket(where: Server) -> None:
    from pyarrow.fs import S3FileSystem

    S3FileSystem(**where.options, allow_bucket_creation=True).create_dir(_BUCKET)


def _free() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise TimeoutError(f"the server did not start: {log.read_text(errors='replace')[-1000:]}") from None
            time.sleep(0.05)
