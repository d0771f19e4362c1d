"""Files in an object store: S3 and compatible ones, Google's, Azure's. Uses `obstore`, which has conditional writes for all of them.

S3 and Azure take `If-None-Match: *`, Google `x-goog-if-generation-match: 0`. Tries are counted by the caller: this asks once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from springtide.state import profiles
from springtide.state.addresses import bucket_of, options_of, scheme_of
from springtide.state.backend import FileInfo
from springtide.state.traffic import count

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_ONCE: Any = {"max_retries": 0}
_TIMES = {"connect_timeout": "3s", "read_timeout": "30s", "timeout": "10m"}
_PART = 16 << 20
"""Bytes of a part of a large file."""
_LARGE = 64 << 20
"""Larger files are written in parts, which takes two more requests, and one for each part."""
_USUAL = ("region", "endpoint_override", "scheme", "access_key", "secret_key", "session_token", "profile")
_METADATA = "169.254.169.254"
_AZURE = "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or give storage_options"
_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give storage_options",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT to a file with a key, or give storage_options",
    "az": _AZURE,
    "abfss": _AZURE,
}
"""Kind of store → where credentials come from."""
STEP = 1000
"""How many names one response of a listing has."""


class ObjectFolder:
    """A folder of a bucket as a place for files."""

    def __init__(self, address: str) -> None:
        """Open a store; nothing is asked yet."""
        self._kind, self._store = scheme_of(address), _opened(address)

    def get(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Return what is in a file, or a part of it."""
        import obstore  # takes its time; most processes never need it

        options: Any = None
        if length is not None:
            options = {"range": (start, start + length)}
        elif start:
            options = {"range": {"offset": start}}
        with _errors(self._kind):
            return obstore.get(self._store, path, options=options).bytes().to_bytes()

    def fetch(self, path: str, to: Path) -> None:
        """Copy a file to this machine, piece by piece."""
        import obstore

        with _errors(self._kind), open(to, "wb") as file:
            found = obstore.get(self._store, path)
            for piece in found.stream(_PART):
                file.write(piece)
            if file.tell() != found.meta["size"]:
                raise OSError(f"{file.tell()} of {found.meta['size']} bytes arrived")

    def put(self, path: str, data: bytes | Path) -> None:
        """Write a file."""
        import obstore

        size = data.stat().st_size if isinstance(data, Path) else len(data)
        if size > _LARGE:
            count(requests=1 + -(-size // _PART))
        with _errors(self._kind):
            obstore.put(self._store, path, data, use_multipart=size > _LARGE, chunk_size=_PART, max_concurrency=4)

    def create(self, path: str, data: bytes) -> None:
        """Write a file only if there is none."""
        import obstore

        with _errors(self._kind):
            obstore.put(self._store, path, data, mode="create")

    def copy(self, path: str, to: str) -> None:
        """Have the store copy a file."""
        import obstore

        with _errors(self._kind):
            obstore.copy(self._store, path, to)

    def list(self, folder: str) -> dict[str, int]:
        """Return the files below a folder."""
        import obstore

        with _errors(self._kind):
            pages = obstore.list(self._store, folder or None, chunk_size=STEP)
            return {meta["path"]: int(meta["size"]) for page in pages for meta in page}

    def size(self, path: str) -> int | None:
        """Return the bytes of a file."""
        import obstore

        try:
            with _errors(self._kind):
                return int(obstore.head(self._store, path)["size"])
        except FileNotFoundError:
            return None

    def infos(self, folder: str) -> dict[str, FileInfo]:
        """Return the files below a folder with what the store says of each."""
        import obstore

        with _errors(self._kind):
            pages = obstore.list(self._store, folder or None, chunk_size=STEP)
            return {meta["path"]: _info(meta) for page in pages for meta in page}

    def info(self, path: str) -> FileInfo | None:
        """Return what the store says of a file."""
        import obstore

        try:
            with _errors(self._kind):
                return _info(obstore.head(self._store, path))
        except FileNotFoundError:
            return None

    def delete(self, paths: Sequence[str]) -> None:
        """Remove files, many with one request where the store can."""
        import obstore

        try:
            with _errors(self._kind):
                obstore.delete(self._store, [*paths])
        except FileNotFoundError:
            if len(paths) > 1:  # one of them did not exist, and it is unknown what became of the others
                for path in paths:
                    self.delete([path])


def _info(meta: Any) -> FileInfo:
    modified = round(meta["last_modified"].timestamp() * 1e6) * 1000
    return FileInfo(int(meta["size"]), modified, (meta["e_tag"] or meta["version"] or "").strip('"'))


@contextmanager
def _errors(kind: str) -> Iterator[None]:
    """Turn errors of the library into Python's own."""
    from obstore import exceptions

    try:
        yield
    except exceptions.NotFoundError as error:
        raise FileNotFoundError(_said(error)) from None
    except exceptions.AlreadyExistsError as error:
        raise FileExistsError(_said(error)) from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(_said(error)) from None
    except (
        exceptions.InvalidPathError,
        exceptions.NotSupportedError,
        exceptions.UnknownConfigurationKeyError,
    ) as error:
        raise ValueError(_said(error)) from None
    except exceptions.BaseError as error:
        said = _said(error)
        if _METADATA in said:  # where the machine itself would have some
            raise PermissionError(f"there are no credentials: {_CREDENTIALS[kind]}") from None
        raise OSError(said) from None


def _said(error: Exception) -> str:
    """Return the part of a store's error that matters: it comes with the whole chain of causes."""
    text = str(error).partition("\n\nDebug source:")[0]
    return " ".join(text.split())


# ── opening ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _opened(address: str) -> ObjectStore:
    with _errors(scheme_of(address)):
        return _OPENERS[scheme_of(address)](address)


def _s3(address: str) -> ObjectStore:
    from obstore.store import S3Store

    bucket, folder = bucket_of(address)
    given = options_of(address)
    protocol = given.pop("scheme", "https")
    if "endpoint_override" in given:
        given["endpoint"] = f"{protocol}://{given.pop('endpoint_override')}"
    if unknown := next((name for name in given if name != "profile" and not _is_known(name)), None):
        raise ValueError(
            f"an s3 address has no option {unknown}; there are {', '.join(_USUAL)} and those of AWS's tools"
        )
    options: Any = profiles.with_usual(given, bucket)
    client = _client(options, options.get("endpoint"))
    credentials = options.pop("credential_provider", None)
    return S3Store(
        bucket,
        prefix=folder or None,
        config=options,
        client_options=client,
        retry_config=_ONCE,
        credential_provider=credentials,
    )


def _is_known(name: str) -> bool:
    from obstore import exceptions
    from obstore.store import S3Store

    try:
        config: Any = {name: "false"}
        S3Store("bucket", config=config)
    except exceptions.UnknownConfigurationKeyError:
        return name == "allow_http"
    except exceptions.BaseError:  # another value would be better
        return True
    return True


def _other(address: str) -> ObjectStore:
    from obstore.store import from_url

    options: Any = options_of(address)
    client = _client(options, None)
    usual = urlsplit(address)._replace(scheme=scheme_of(address), query="").geturl()
    return from_url(usual, config=options, client_options=client, retry_config=_ONCE)


def _client(options: dict[str, Any], endpoint: str | None) -> Any:
    """Take the options of the connection out of the others. An endpoint with http:// is used without TLS."""
    allowed = options.pop("allow_http", "false") == "true"
    return _TIMES | {"allow_http": allowed or (endpoint or "").startswith("http://")}


_OPENERS: dict[str, Callable[[str], ObjectStore]] = {"s3": _s3, "gs": _other, "az": _other, "abfss": _other}


@functools.lru_cache(maxsize=64)
def opened(address: str, process: int) -> ObjectFolder:
    """Return the store of an address, opened once in a process: a connection does not survive a fork."""
    return ObjectFolder(address)
