"""Paths as people write them: a folder in a mounted file system, or an address in another one, which is never mistaken for a folder."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/*)")
_KNOWN = {
    "abfs",
    "abfss",
    "adl",
    "dbfs",
    "file",
    "ftp",
    "gcs",
    "gs",
    "hdfs",
    "http",
    "https",
    "s3",
    "s3a",
    "s3n",
    "sftp",
    "wasb",
    "wasbs",
}
"""Schemes that are recognised without their two slashes, because a `Path` loses one of them."""


def scheme_of(where: str | Path) -> str | None:
    """Return the scheme of an address in lower case; None for a path.

    >>> scheme_of("s3://bucket/out"), scheme_of(Path("s3://bucket/out")), scheme_of("dbfs:/mnt"), scheme_of("out/a:b")
    ('s3', 's3', 'dbfs', None)
    """
    found = _ADDRESS.match(str(where))
    if found is None or not found[2]:
        return None
    scheme = found[1].lower()
    return scheme if len(found[2]) > 1 or scheme in _KNOWN else None


def local(where: str | Path) -> Path | None:
    """Return the path that is meant, as it was written; None for an address in a file system that is not mounted.

    >>> local("out/"), local("file:///mnt/out%20put"), local("s3://bucket/out")
    (PosixPath('out'), PosixPath('/mnt/out put'), None)
    """
    scheme = scheme_of(where)
    if scheme is None:
        return Path(where)
    parts = urlsplit(str(where))
    if scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    return Path(unquote(parts.path))


def without_secrets(address: str | Path) -> str:
    """Return an address for a message: only where it leads.

    >>> without_secrets("s3://key:secret@bucket/out?secret_key=hidden")
    's3://bucket/out'
    """
    scheme, _, rest = str(address).partition(":")
    place, slash, path = rest.lstrip("/").partition("?")[0].partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"
