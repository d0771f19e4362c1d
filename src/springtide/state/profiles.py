"""Where S3's own tools have options and credentials: the environment, and the files of profiles. Instance roles are asked by the store itself."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_KEYS = ("access_key_id", "secret_access_key", "session_token")
_OTHER_WAYS = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
"""Credentials from the environment, which count before those of a profile that nobody asked for."""


def with_usual(given: Mapping[str, str], bucket: str) -> dict[str, Any]:
    """Return options with what the environment and profiles add to them; what is given counts first."""
    options: dict[str, Any] = {_long(name): value for name, value in given.items()}
    name = options.pop("profile", None) or os.environ.get("AWS_PROFILE")
    found = read_profile(name)
    wanted = name is not None or not any(way in os.environ for way in _OTHER_WAYS)
    if wanted and "access_key_id" not in options and not options.get("skip_signature"):
        options |= {key: found[f"aws_{key}"] for key in _KEYS if f"aws_{key}" in found}
        if found and "aws_access_key_id" not in found and name is not None:
            options["credential_provider"] = _by_boto3(name)
    endpoint = options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint is not None:
        options["endpoint"] = endpoint
    region = options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    options["region"] = region or found.get("region") or _region(bucket, endpoint)
    return options


def _long(name: str) -> str:
    """Return the name that an option is known by here: without `aws_`, and one of those that mean the same."""
    name = name.removeprefix("aws_")
    return {"endpoint_url": "endpoint", "default_region": "region"}.get(name, name)


def _region(bucket: str, endpoint: str | None) -> str:
    """Return the region of a bucket. A server of somebody's own has none, but its signatures name one."""
    if endpoint is not None:
        return "us-east-1"
    import pyarrow.fs

    region: str = pyarrow.fs.resolve_s3_region(bucket)
    return region


def read_profile(name: str | None) -> dict[str, str]:
    """Return what the files of profiles say of one; of the usual one if none is named. One that is named and not there is refused."""
    found: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", f"profile {name}" if name not in (None, "default") else "default"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name or "default"),
    ):
        path = Path(os.environ.get(variable) or Path.home() / ".aws" / file)
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError):
            continue
        found |= dict(parser[section]) if parser.has_section(section) else {}
    if name is not None and not found:
        raise ValueError(f"there is no profile {name}, neither in ~/.aws/config nor in ~/.aws/credentials")
    return found


def _by_boto3(name: str) -> Any:
    """Return what gets the credentials of a profile that has no keys of its own: a role, single sign-on."""
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise ValueError(
            f"the profile {name} has no keys of its own; to use its role or sign-on, install boto3"
        ) from None
    return Boto3CredentialProvider(Session(profile_name=name))
