"""`schemas`: the schemas of a registry, from its topic, from files, or from the registry itself.

Of a running registry, only the address that the caller names is asked: redirects are refused, and
nothing that a schema names is opened. Certificates are checked. Credentials come from the
environment or from netrc, and appear in no message. An answer is bounded, and so is the wait for
it.

    GET /contexts                                    the contexts; a registry may have no such page
    GET /subjects?deleted=true                       the subjects, also deleted ones
    GET /subjects/SUBJECT/versions?deleted=true      the versions of one, also deleted ones
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
from os import fspath
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit
from urllib.request import HTTPErrorProcessor, OpenerDirector, build_opener

from kseg.catalog import paths_of
from kseg.constants import Progress
from kseg.errors import LimitExceededError, NotALogError
from kseg.files import io
from kseg.files.selection import NothingChosenError, StrPaths
from kseg.format.times import Time
from kseg.internal.registry import BYTES_MAX, RefusedError, Replay, Schemas, parse
from kseg.records.scan import scan

#: The topic of a registry, unless it is configured otherwise.
TOPIC: Final = "_schemas"
#: The kinds of schemas in files, by how their names end.
KINDS: Final = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


def schemas(
    paths: StrPaths,
    *,
    at: Time | None = None,
    topic: str = TOPIC,
    progress: Progress | None = None,
) -> Schemas:
    """Read the schemas of a schema registry: Confluent's, Karapace, and others with its topic.

    Only a registry that the caller names is asked, and references in a schema are never opened.

    Args:
        paths: data directories and partitions that hold the registry's topic, files of schemas
            (`.avsc`, `.proto`, `.json`), or globs. A file is a subject of its own name. Or the
            address of a registry, `http://` or `https://`: credentials are the variables
            `KSEG_REGISTRY_USER_INFO` ("user:password") or `KSEG_REGISTRY_TOKEN`, or in netrc.
        at: the registry as it was before this time, as far as compaction has left the records;
            the times are given as to `kseg.scan`. Not for an address.
        topic: the registry's topic.
        progress: called with the bytes of the segments that are read, and of all segments; or with
            the numbers of subjects of a registry.

    Returns:
        A table with a row for each version of each subject, deleted ones among them; the oddities
        are in `findings`.

    Raises:
        LimitExceededError: all texts together are larger than 1 GiB.
        NotALogError: the topic is not here, or a path is nothing that kseg reads.
        ValueError, TypeError, OSError: as for `kseg.scan`; an address has credentials in it, or
            the registry does not answer.

    Example:
        >>> with open("user.avsc", "w") as file:
        ...     _ = file.write('{"type": "string"}')
        >>> schemas("user.avsc")[0].type
        'AVRO'
    """
    replay = Replay()
    if isinstance(paths, str) and paths.startswith(("http://", "https://")):
        if at is not None:
            raise ValueError("at is for the topic of a registry: a registry says what is now")
        feed_registry(replay, paths, progress)
        return replay.answer()
    all_paths = paths_of(paths)
    files = [path for path in all_paths if path.suffix in KINDS and not path.is_dir()]
    logs = [path for path in all_paths if path not in files]
    if logs:
        _feed_logs(replay, logs, at, topic, progress)
    for path in files:
        try:
            data = io.read_file(path, bytes_max=BYTES_MAX)
        except LimitExceededError as error:
            replay.note("too-large", error.reason, fspath(path))
        else:
            replay.feed_file(fspath(path), KINDS[path.suffix], path.stem, data)
    return replay.answer()


def _feed_logs(
    replay: Replay, logs: list[Path], at: Time | None, topic: str, progress: Progress | None
) -> None:
    """Feed the records of the registry's topic, in order; damage is noted and passed over."""
    try:
        reader = scan(
            logs,
            topics=topic,
            time=None if at is None else (None, at),
            columns=("offset", "timestamp_ms", "key", "value"),
            replicas="newest",
            on_corrupt="skip",
            progress=progress,
        )
    except NothingChosenError as refusal:
        raise NotALogError(str(refusal), path=logs[0]) from None
    for columns in reader:
        replay.path = columns.source or ""
        offsets = columns["offset"].tolist()
        times = columns["timestamp_ms"].tolist()
        for offset, time, key, value in zip(
            offsets, times, columns["key"], columns["value"], strict=True
        ):
            replay.offset = offset
            replay.timestamp_ms = time
            replay.feed(key, value)
    for error in reader.errors:
        replay.note("log-damaged", error.reason, error.path or "", error.offset)


#: "user:password"; or a token, which goes before.
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
        replay: takes them, and the findings.
        url: the address of the registry, beginning with `http://` or `https://`.
        progress: called with the number of subjects that are read, and of all.

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
    """A page that is a list of texts or numbers."""
    try:
        entries = parse(get(page), "record-json")
    except RefusedError as error:
        entries = error.args[1]
    if not isinstance(entries, list) or not all(type(entry) is kind for entry in entries):
        raise NotALogError(f"not a schema registry: {page} has {repr(entries)[:100]}")
    return entries


def _get(opener: OpenerDirector, address: str, page: str) -> bytes:
    """The bytes of a page, at most one more than allowed; an empty list without such a page."""
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
        """Take any status, and follow no redirect: it could lead credentials elsewhere."""
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
    """The header with the credentials that the user has for a host; none without any."""
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
