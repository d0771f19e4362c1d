"""A schema registry, asked by the REST API that Confluent's, Apicurio's, Karapace's and Redpanda's have in common."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from springtide.connectors import Secret
from springtide.query.errors import QueryError, SpringtideError, shown
from springtide.query.usage import usage

_STEP = "(schema_registry)"
_ANSWER = 10.0
"""Seconds in which a registry answers; after that it counts as away."""
_TYPE = "application/vnd.schemaregistry.v1+json"
_KNOWN = 4096
"""Schemas that a process keeps. An id means the same schema for ever."""


class Unknown(Exception):
    """The registry has no such schema."""


class Refused(Exception):
    """The registry does not take a schema."""


@dataclass(frozen=True)
class Registered:
    """A schema as the registry has it."""

    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[tuple[str, str, int], ...] = ()
    """Name, subject and version of each schema that it refers to."""


@dataclass(frozen=True)
class Registry:
    """Where schemas are, and how to connect to it."""

    url: str
    user: Secret | str | None = None
    password: Secret | None = None
    token: Secret | None = None
    ca: str | None = None

    def schema(self, id: int) -> Registered:
        """Return the schema with an id; `Unknown` if there is none."""
        return _by_id(self, id)

    def version(self, subject: str, version: int) -> Registered:
        """Return a version of a subject: what a schema refers to."""
        return _by_version(self, subject, version)

    def register(self, subject: str, schema: Registered) -> int:
        """Return the id of a schema under a subject; it is added if it is new. `Refused` if it is not compatible with earlier ones."""
        body = {"schema": schema.text} | ({} if schema.kind == "AVRO" else {"schemaType": schema.kind})
        return int(self._ask(f"/subjects/{quote(subject, safe='')}/versions", body)["id"])

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE} | self._credentials()
        try:
            with _opener(self.ca).open(Request(self.url + path, data, headers), timeout=_ANSWER) as answer:
                found = json.load(answer)
        except HTTPError as error:
            raise self._fault(error) from None
        except ssl.SSLCertVerificationError as error:
            raise self._distrusted(error.verify_message) from None
        except URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise self._distrusted(error.reason.verify_message) from None
            raise ConnectionError(f"the schema registry {self.url} does not answer: {error.reason}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise ConnectionError(f"the schema registry {self.url} does not answer: {error}") from None
        return dict(found)

    def _credentials(self) -> dict[str, str]:
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token.reveal()}"}
        if self.user is None:
            return {}
        user = self.user.reveal() if isinstance(self.user, Secret) else self.user
        pair = f"{user}:{self.password.reveal() if self.password is not None else ''}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def _distrusted(self, why: str) -> SpringtideError:
        return SpringtideError(
            f"the certificate of the schema registry {self.url} cannot be verified ({why}); name a file with the certificate of its authority: "
            "st.schema_registry(…, ca='ca.pem')"
        )

    def _fault(self, error: HTTPError) -> Exception:
        try:
            said = str(json.load(error).get("message", error.reason))
        except (OSError, ValueError, AttributeError):
            said = str(error.reason)
        if error.code in (401, 403):
            return SpringtideError(
                f"the schema registry {self.url} refuses access ({error.code}); check the user and the password, or the token, of st.schema_registry"
            )
        if error.code == 404:
            return Unknown(said)
        if error.code in (409, 422):
            return Refused(said)
        if error.code in (408, 429) or error.code >= 500:
            return ConnectionError(f"the schema registry {self.url} answers {error.code}: {said}")
        return SpringtideError(f"the schema registry {self.url} answers {error.code}: {said}; check its address")


@lru_cache(_KNOWN)
def _by_id(registry: Registry, id: int) -> Registered:
    return _registered(registry._ask(f"/schemas/ids/{id}?format=serialized"))


@lru_cache(_KNOWN)
def _by_version(registry: Registry, subject: str, version: int) -> Registered:
    return _registered(
        registry._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true&format=serialized")
    )


def _registered(answer: Mapping[str, Any]) -> Registered:
    references = tuple((r["name"], r["subject"], int(r["version"])) for r in answer.get("references") or ())
    return Registered(answer.get("schemaType") or "AVRO", answer["schema"], references)


class _Stay(HTTPRedirectHandler):
    """Follow no redirections: credentials go nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


@lru_cache(16)
def _opener(ca: str | None) -> OpenerDirector:
    return build_opener(_Stay, HTTPSHandler(context=ssl.create_default_context(cafile=ca)))


@usage("st.schema_registry('http://localhost:8081')")
def schema_registry(
    url: str,
    *,
    user: Secret | str | None = None,
    password: Secret | str | None = None,
    token: Secret | str | None = None,
    ca: str | None = None,
) -> Registry:
    """Say where the schemas of Avro and Protobuf values are: for `st.kafka` and `st.kafka_sink`.

    The address is that of the API that Confluent's registry has (Apicurio's is at `/apis/ccompat/v7`). `password` and `token` can be a
    `springtide.connectors.Secret`, and are never shown; `ca` is a file with the certificate of an authority of your own.

    >>> st.schema_registry("https://registry:8081", user="springtide", password="hunter2")
    Registry(url='https://registry:8081', user='springtide', password=Secret(…), token=None, ca=None)
    """
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise QueryError(
            _STEP, f"{shown(url)} is not the address of a registry", "write for example 'http://localhost:8081'"
        )
    if parts.username or parts.password:
        raise QueryError(_STEP, "the address has a user in it", "take it out, and give user= and password=")
    plain = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
    return Registry(plain, user, _secret(password), _secret(token), ca)


def registry_of(given: Any) -> Registry | None:
    """Return the registry that a user named, by its address or made by `schema_registry`."""
    return given if given is None or isinstance(given, Registry) else schema_registry(given)


def _secret(value: Secret | str | None) -> Secret | None:
    return value if value is None or isinstance(value, Secret) else Secret(value)
