"""Files in object stores that are made only if there is none: what Arrow cannot do, by `obstore`.

S3 and Azure take `If-None-Match: *`, Google `x-goog-if-generation-match: 0`. Errors come as Python's own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from springtide.state.errors import CheckpointError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_SCHEMES = ("s3", "gs", "gcs", "az", "abfs", "abfss")
_S3 = {
    "region": "region",
    "access_key": "access_key_id",
    "secret_key": "secret_access_key",
    "session_token": "session_token",
}
"""Parts of an s3 address, and what they are called here."""


def create(url: str, scheme: str, bucket: str, given: Mapping[str, str], path: str, data: bytes, process: int) -> None:
    """Write a file; one that is there is a `FileExistsError`. `url` is the address as it may be shown."""
    if scheme not in _SCHEMES:
        raise CheckpointError(
            url,
            "cannot be claimed by one run at a time: this kind of store cannot make a file only if there is none",
            "use a folder that all machines see, s3://, gs:// or abfss://",
        )
    import obstore  # takes its time; most processes never need it
    from obstore import exceptions

    try:
        obstore.put(_opened(scheme, bucket, frozenset(given.items()), process), path, data, mode="create")
    except exceptions.AlreadyExistsError as error:
        raise FileExistsError(str(error)) from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(_first(error)) from None
    except exceptions.BaseError as error:
        raise OSError(_first(error)) from None


@functools.lru_cache(maxsize=64)
def _opened(scheme: str, bucket: str, parts: frozenset[tuple[str, str]], process: int) -> ObjectStore:
    """Open a store, once in a process: a connection does not survive a fork."""
    from obstore.store import S3Store, from_url

    once: Any = {"max_retries": 0}  # tries are counted by the caller, for every kind of store
    if scheme != "s3":
        return from_url(f"{scheme}://{bucket}", retry_config=once)
    given = dict(parts)
    options: Any = {name: given[part] for part, name in _S3.items() if part in given}
    if "endpoint_override" in given:
        options["endpoint"] = f"{given.get('scheme', 'https')}://{given['endpoint_override']}"
    client: Any = {"allow_http": given.get("scheme") == "http", "connect_timeout": "3s", "timeout": "30s"}
    return S3Store(bucket, client_options=client, retry_config=once, **options)


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
