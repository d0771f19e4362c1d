"""Addresses of object stores: what their parts mean, and which of them may be shown.

    s3://bucket/folder?region=eu-central-1
    s3://bucket/folder?endpoint_override=host:9000&scheme=http&access_key=…&secret_key=…
    gs://bucket/folder
    az://container/folder
    abfss://container@account.dfs.core.windows.net/folder

Options are parts of the address. They are named as above, or as the store's own tools name them (`aws_region`, `google_service_account`,
`azure_storage_account_key`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from springtide.query.places import without_secrets
from springtide.state.errors import CheckpointError

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "abfss", "abfss": "abfss"}
"""Schemes of addresses, with the scheme that each is an alias of."""
_OPEN = re.compile(
    r"(aws_|google_|azure_storage_|azure_)?"
    r"((default_)?region|scheme|endpoint|endpoint_url|endpoint_override|allow_http|account_name|profile|virtual_hosted_style_request)"
)
"""Options that may be shown; all others are treated as secrets."""
_SHORT = {"access_key": "access_key_id", "secret_key": "secret_access_key"}
"""Short names of options, and what they are called elsewhere."""


def scheme_of(address: str) -> str:
    """Return the kind of store that an address names; refuse those that are not supported.

    >>> scheme_of("s3a://bucket/x"), scheme_of("abfss://files@me.dfs.core.windows.net/x")
    ('s3', 'abfss')
    """
    scheme = urlsplit(address).scheme.lower()
    if scheme not in SCHEMES:
        raise CheckpointError(
            without_secrets(address),
            f"is in an unknown kind of store: {scheme}://",
            "use a folder (a path, file://), s3://, gs://, az:// or abfss://",
        )
    if not urlsplit(address).netloc.rpartition("@")[2]:
        raise CheckpointError(without_secrets(address), "names no bucket", f"write it like {scheme}://BUCKET/FOLDER")
    return SCHEMES[scheme]


def with_options(address: str, options: Mapping[str, Any] | None) -> str:
    """Return an address with further options.

    >>> with_options("s3://bucket/x?region=r", {"access_key": "me", "allow_http": True})
    's3://bucket/x?region=r&access_key=me&allow_http=true'
    """
    if not options:
        return address
    parts = urlsplit(address)
    more = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    return parts._replace(query=urlencode({**dict(parse_qsl(parts.query)), **more}, safe=":/")).geturl()


def options_of(address: str) -> dict[str, str]:
    """Return the options of an address by their long names, with credentials that are written before the bucket of an s3 address."""
    parts = urlsplit(address)
    given = {_SHORT.get(name, name): value for name, value in parse_qsl(parts.query)}
    user, _, _ = parts.netloc.rpartition("@")
    if user and scheme_of(address) == "s3":
        name, _, password = user.partition(":")
        given |= {"access_key_id": unquote(name), "secret_access_key": unquote(password)}
    return given


def bucket_of(address: str) -> tuple[str, str]:
    """Return the bucket of an address, and the folder in it.

    >>> bucket_of("s3://key:secret@bucket/a%20b/c?region=r")
    ('bucket', 'a b/c')
    """
    parts = urlsplit(address)
    return parts.netloc.rpartition("@")[2], unquote(parts.path).strip("/")


def under(address: str, folder: str) -> str:
    """Return the address of a folder in a store."""
    parts = urlsplit(address)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{quote(folder)}").geturl()


def shown(address: str) -> str:
    """Return an address without what is secret in it.

    >>> shown("s3://key:secret@bucket/x?region=r&secret_key=hidden")
    's3://bucket/x?region=r'
    """
    parts = urlsplit(address)
    query = urlencode([(k, v) for k, v in parse_qsl(parts.query) if _OPEN.fullmatch(k)], safe=":/")
    return parts._replace(netloc=_place(parts), query=query).geturl()


def hidden(text: str, address: str) -> str:
    """Return a message from elsewhere without the secrets of any address in it."""
    text = text.replace(address, shown(address))
    for secret in _secrets(urlsplit(address)):
        for form in {secret, quote(secret), quote(secret, safe="")}:
            text = text.replace(form, "…")
    return text


def _place(parts: SplitResult) -> str:
    is_container = parts.scheme.lower() in ("abfs", "abfss")  # written before the account
    return parts.netloc if is_container else parts.netloc.rpartition("@")[2]


def _secrets(parts: SplitResult) -> list[str]:
    user = "" if _place(parts) == parts.netloc else parts.netloc.rpartition("@")[0]
    found: Iterable[str] = [
        *(unquote(part) for part in user.partition(":")[::2]),
        *(v for k, v in parse_qsl(parts.query) if not _OPEN.fullmatch(k)),
    ]
    return sorted((s for s in found if s), key=len, reverse=True)
