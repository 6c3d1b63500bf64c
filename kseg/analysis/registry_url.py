"""The schemas of a running schema registry, over HTTP: Confluent's, Karapace, and others like them.

Only the address that the caller names is asked: redirects are refused, and nothing that a schema
names is opened. Certificates are checked. Credentials come from the environment or from netrc, and
appear in no message. An answer is bounded, and so is the wait for it.

    GET /contexts                                    the contexts; a registry may have no such page
    GET /subjects?deleted=true                       the subjects, with deleted ones
    GET /subjects/SUBJECT/versions?deleted=true      a subject's versions, with deleted ones
    GET /subjects/SUBJECT/versions                   the versions that are not deleted
    GET /subjects/SUBJECT/versions/N?deleted=true    a schema, nearly as its record has it

Source: the REST interfaces of Confluent's schema registry (8.x) and of Karapace.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from http.client import HTTPException
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit
from urllib.request import HTTPErrorProcessor, OpenerDirector, build_opener

from kseg.errors import NotALogError
from kseg.internal.registry import BYTES_MAX, RefusedError, Replay, parse

#: The variables of the environment with "user:password", and with a token, which takes precedence.
USER_INFO: Final = "KSEG_REGISTRY_USER_INFO"
TOKEN: Final = "KSEG_REGISTRY_TOKEN"
_ACCEPTED: Final = "application/vnd.schemaregistry.v1+json, application/json"
#: The longest wait for the next bytes of an answer.
_TIMEOUT_SECONDS: Final = 30


def feed_registry(
    replay: Replay, url: str, progress: Callable[[int, int], None] | None = None
) -> None:
    """Feed the schemas of a registry to a replay.

    Args:
        replay: receives the schemas and the findings.
        url: the address of the registry, beginning with `http://` or `https://`.
        progress: called with the number of subjects read so far, and the number of all.

    Raises:
        ValueError: the URL has credentials or a query in it.
        NotALogError: the server does not answer as a registry does.
        LimitExceededError: all texts together are larger than 1 GiB.
        OSError: the registry does not answer, or refuses to.
    """
    address = url.rstrip("/")
    get = partial(_get, _opener(address), address)
    pages = ["/subjects?deleted=true"]
    for context in _entries(get, "/contexts"):
        pages.append(f"{pages[0]}&subjectPrefix={quote(f':{context}:', safe='')}")
    subjects = list(dict.fromkeys(subject for page in pages for subject in _entries(get, page)))
    replay.path, replay.offset, replay.timestamp_ms = address, None, None
    for done, subject in enumerate(subjects, 1):
        page = f"/subjects/{quote(subject, safe='')}/versions"
        live = _entries(get, page, int)
        for version in _entries(get, f"{page}?deleted=true", int):
            key = {"keytype": "SCHEMA", "subject": subject, "version": version}
            replay.feed(json.dumps(key).encode(), get(f"{page}/{version}?deleted=true"))
            if version not in live:
                replay.mark(subject, version, "soft")
        if progress is not None:
            progress(done, len(subjects))


def _entries(get: Callable[[str], bytes], page: str, kind: type[Any] = str) -> list[Any]:
    """The entries of a page that is a JSON list.

    Args:
        get: returns the bytes of a page.
        page: the path of the page.
        kind: the type of each entry.

    Raises:
        NotALogError: the page is something else.
    """
    try:
        entries = parse(get(page), "record-json")
    except RefusedError as error:
        entries = error.args[1]
    if not isinstance(entries, list) or not all(type(entry) is kind for entry in entries):
        raise NotALogError(f"not a schema registry: {page} has {repr(entries)[:100]}")
    return entries


def _get(opener: OpenerDirector, address: str, page: str) -> bytes:
    """The bytes of a page; `b"[]"`, an empty JSON list, if the server answers 404.

    They end at `BYTES_MAX + 1`, so that the caller can see that a page is too long.

    Raises:
        OSError: the server cannot be reached, or answers with another status.
    """
    try:
        with opener.open(address + page, timeout=_TIMEOUT_SECONDS) as answer:
            status = answer.status
            data = bytes(answer.read(BYTES_MAX + 1))
    except (OSError, HTTPException) as error:
        raise OSError(f"{address}: {getattr(error, 'reason', None) or repr(error)}") from None
    if status not in (200, 404):
        hint = f"; credentials come from {USER_INFO}, {TOKEN} or netrc" if status == 401 else ""
        raise OSError(f"{address}: HTTP status {status}{hint}")
    return data if status == 200 else b"[]"


class _AnyStatus(HTTPErrorProcessor):
    def http_response(self, request: Any, response: Any) -> Any:
        """Accept any status, and follow no redirect, which could send credentials elsewhere."""
        return response

    https_response = http_response


def _opener(address: str) -> OpenerDirector:
    """An opener for pages, with the credentials for an address."""
    parts = urlsplit(address)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            "the address of a registry has no user, password or query in it; credentials come"
            f" from the variables {USER_INFO} and {TOKEN}, or from netrc"
        )
    opener = build_opener(_AnyStatus)
    opener.addheaders = [("Accept", _ACCEPTED), *_credentials(parts.hostname or "")]
    return opener


def _credentials(host: str) -> list[tuple[str, str]]:
    """The header with the user's credentials for a host; empty if the user has none."""
    if token := os.environ.get(TOKEN):
        return [("Authorization", f"Bearer {''.join(token.split())}")]
    user = os.environ.get(USER_INFO)
    netrc_path = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    if user is None and netrc_path.is_file():
        try:
            login = netrc(netrc_path).authenticators(host)
        except NetrcParseError as error:  # its message may hold a password
            raise OSError(f"{netrc_path}: line {error.lineno} cannot be read") from None
        user = login and f"{login[0]}:{login[2]}"
    return [("Authorization", f"Basic {b64encode(user.encode()).decode()}")] if user else []
