"""The schemas of a schema registry, from the records of its topic `_schemas`.

Keys and values are JSON. References in a schema are never opened: no `$ref`, no import, no URL.
JSON is parsed only below `DEPTH_MAX`, and records that cannot be understood become findings.

Source: the layouts of Confluent's schema registry (8.x) and of Karapace.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from hashlib import md5
from heapq import heappop, heappush
from struct import pack
from typing import Any, Final, Literal, NamedTuple, NoReturn
from uuid import UUID

import numpy as np

from kseg.documents import frozen_dataclass
from kseg.errors import LimitExceededError
from kseg.format.times import cell_of
from kseg.frames import Listed, TableRows

#: A value, or a file, with more bytes is not read; all texts together; brackets in brackets.
BYTES_MAX: Final = 16 << 20
TOTAL_BYTES_MAX: Final = 1 << 30
DEPTH_MAX: Final = 250
#: Further findings of a code are counted, not kept.
PER_CODE_MAX: Final = 100

TYPES: Final = ("AVRO", "PROTOBUF", "JSON")

Severity = Literal["error", "warning"]
#: A registry refuses a soft deletion's schema to new readers; a hard one has left a tombstone.
Deletion = Literal["soft", "hard"]

CODES: Final[dict[str, tuple[Severity, str]]] = {
    "log-damaged": ("error", "a batch is damaged: its schemas and deletions are missing"),
    "record-json": ("error", "a key or a value is not JSON; the record is skipped"),
    "record-field": ("error", "a field is missing, or cannot have its value; record skipped"),
    "key-unknown": ("warning", "a record of a kind that kseg does not know; it is skipped"),
    "field-unknown": ("warning", "fields that kseg does not know; the others are taken"),
    "too-deep": ("error", f"JSON with more than {DEPTH_MAX} brackets in brackets; not parsed"),
    "too-large": ("error", f"more than {BYTES_MAX >> 20} MiB; not read"),
    "type-unknown": ("warning", f"a type other than {', '.join(TYPES)}"),
    "schema-json": ("error", "the text of an Avro or JSON schema is not JSON"),
    "encrypted": ("warning", "the registry has encrypted metadata of the schema"),
    "guid": ("warning", "the GUID cannot be read from the field md5, or not be computed"),
    "id-two-texts": ("error", "an id has a second text; the first one is kept"),
    "id-in-contexts": ("warning", "an id names different schemas in several contexts"),
    "reference-missing": ("error", "a schema refers to one that is not here"),
    "reference-cycle": ("error", "references lead back to where they began"),
    "file-text": ("error", "a file of a schema is not UTF-8"),
}

#: Fields of a schema's record; the last three come in answers, and no registry stores them.
_FIELDS: Final = {
    *("subject", "version", "id", "md5", "schemaType", "references", "metadata", "ruleSet"),
    *("schema", "deleted", "offset", "ts", "guid"),
}
#: Types of records without schemas; tombstones come before CLEAR_SUBJECT.
_PASSED: Final = ("CONFIG", "MODE", "NOOP", "CONTEXT", "ASSOC", "CLEAR_SUBJECT")
#: Types of rules by which clients encrypt fields, or whole payloads, as JSON has them.
_ENCRYPTS: Final = ('"ENCRYPT"', '"ENCRYPT_PAYLOAD"')
#: A string of JSON; one without an end goes to the end, so the search never starts twice.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.?+[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
#: The parts of a rule in the order of the GUID's digest.
_RULE: Final = (
    *("name", "doc", "kind", "mode", "type", "tags", "params"),
    *("expr", "onSuccess", "onFailure", "disabled"),
)


class Reference(NamedTuple):
    """A schema that another one needs: its name there, its subject and its version."""

    name: str
    subject: str
    version: int

    def subject_in(self, context: str) -> str:
        """The subject with its context; `context` is that of the schema with the reference."""
        if self.subject.startswith(":.") or context == ".":
            return self.subject
        return f":{context}:{self.subject}"


class SchemaFinding(NamedTuple):
    """An oddity among schemas.

    Attributes:
        code: a word of `kseg schemas --codes`.
        severity: "error" or "warning".
        path: the file.
        offset: the offset of the record; None for a file, or for a batch.
        message: the oddity, with the values that show it.
    """

    code: str
    severity: Severity
    path: str
    offset: int | None
    message: str

    def __str__(self) -> str:
        """The finding in one line of text."""
        location = self.path if self.offset is None else f"{self.path}, offset {self.offset}"
        return f"{self.severity}: {self.code}: {location}: {self.message}"


@frozen_dataclass
class Schema:
    """One version of a subject.

    Attributes:
        subject: its name, with the context as the registry has it; for a file, the file's name.
        version, id: None for a file.
        guid: as the registry computes it; None if a part is encrypted or damaged.
        type: AVRO, PROTOBUF or JSON.
        text: the schema.
        references: the schemas that it needs.
        deleted: None, "soft" or "hard". The ids of deleted schemas still resolve.
        path: the file.
        offset, timestamp_ms: those of the record with the text; None for a file.
        encrypts: whether one of its rules makes clients encrypt fields.
    """

    subject: str
    version: int | None
    id: int | None
    guid: str | None
    type: str
    text: str = field(repr=False)
    references: tuple[Reference, ...] = ()
    deleted: Deletion | None = None
    path: str = ""
    offset: int | None = None
    timestamp_ms: int | None = None
    encrypts: bool = field(default=False, repr=False)

    @property
    def label(self) -> str:
        """The subject and the id, for messages."""
        return self.subject if self.id is None else f"{self.subject} (id {self.id})"

    @property
    def context(self) -> str:
        """The context of the subject; `.` is the default one."""
        prefix = re.match(r":(\.[^:]*):", self.subject)
        return prefix[1] if prefix else "."

    def row(self) -> dict[str, Any]:
        """The fields in the form that JSON has."""
        return {
            "subject": self.subject,
            "version": self.version,
            "id": self.id,
            "guid": self.guid,
            "type": self.type,
            "deleted": self.deleted,
            "context": self.context,
            "references": [reference._asdict() for reference in self.references],
            "text": self.text,
            "path": self.path,
            "offset": self.offset,
            "timestamp": self.timestamp_ms,
        }


@frozen_dataclass(repr=False)
class Schemas(Listed[Schema]):
    """The answer of `kseg.schemas`; a table with a row for each version of each subject.

    Attributes:
        findings: the oddities.
    """

    COLUMNS = "subject version id guid type deleted context references text path offset timestamp"

    findings: tuple[SchemaFinding, ...] = ()

    @property
    def title(self) -> str:
        """The numbers of schemas and findings."""
        return f"{len(self)} schemas, {len(self.findings)} findings"

    def table_rows(self) -> TableRows:
        """The attributes of each schema."""
        return [{**schema.row(), "timestamp": cell_of(schema.timestamp_ms)} for schema in self]

    def by_id(self, schema_id: int, *, context: str | None = None) -> Schema:
        """The schema of an id, also of a deleted one.

        Args:
            schema_id: the id.
            context: the context whose ids count; None if the id is the same schema in all.

        Raises:
            LookupError: no schema has the id.
            ValueError: contexts have different schemas of this id.
        """
        with_id = [
            schema
            for schema in self
            if schema.id == schema_id and (context is None or schema.context == context)
        ]
        if len({schema.text for schema in with_id}) > 1:
            places = ", ".join(sorted({schema.context for schema in with_id}))
            raise ValueError(f"id {schema_id} has several schemas: name one context of {places}")
        return _newest_schema(with_id, f"no schema here has id {schema_id}")

    def by_version(self, subject: str, version: int | None = None) -> Schema:
        """A version of a subject, even a deleted one.

        Args:
            subject: the name.
            version: the number; None for the latest one that is not deleted.

        Raises:
            LookupError: the schema does not exist.
        """
        versions = [schema for schema in self if schema.subject == subject]
        if version is None:
            live = [schema for schema in versions if schema.deleted is None]
            why = "has no version that is not deleted" if versions else "is not a subject here"
            return _newest_schema(live[-1:], f"{subject} {why}")
        versions = [schema for schema in versions if schema.version == version]
        return _newest_schema(versions, f"{subject} has no version {version}")

    def by_guid(self, guid: str | UUID) -> Schema:
        """The schema of a GUID.

        Args:
            guid: a `UUID`, or its text.

        Raises:
            LookupError: no schema has it.
            ValueError: the text is not a UUID.
        """
        guid_text = str(guid if isinstance(guid, UUID) else UUID(guid))
        return _newest_schema(
            [schema for schema in self if schema.guid == guid_text],
            f"no schema here has GUID {guid_text}",
        )


def _newest_schema(schemas: Sequence[Schema], missing: str) -> Schema:
    """The newest schema that is not deleted; else the newest soft-deleted one; else any."""
    if not schemas:
        raise LookupError(missing)
    order: tuple[Deletion | None, ...] = ("hard", "soft", None)
    return max(schemas, key=lambda schema: (order.index(schema.deleted), schema.offset or 0))


# ---- GUIDs ---------------------------------------------------------------------------------------


def guid_of(
    text: str,
    references: Iterable[Reference] = (),
    metadata: Any = None,
    rules: Any = None,
) -> str:
    """The GUID of a schema: an MD5 over all that makes it, as a UUID.

    Args:
        text: the schema.
        references: the references, in their order.
        metadata: the registry's metadata, as JSON has it; None if there is none.
        rules: the registry's rules, likewise.

    Raises:
        TypeError: metadata or rules have another form.
    """
    parts: list[Any] = [text]
    for reference in references:
        parts += [reference.name, reference.subject, pack(">i", reference.version)]
    if metadata is not None:
        parts += [b"\1", *_get(metadata, "tags", "properties", "sensitive")]
    if rules is not None:
        *kinds, enabled = _get(rules, "migrationRules", "domainRules", "encodingRules", "enableAt")
        rule_values = (_get(rule, *_RULE) for kind in kinds for rule in kind or ())
        parts += [b"\1", *(part for values in rule_values for part in values), enabled]
    flat = (
        b for part in parts for b in ((part,) if isinstance(part, bytes) else _sorted_texts(part))
    )
    return str(UUID(bytes=md5(b"".join(flat), usedforsecurity=False).digest()))


def _get(document: Any, *names: str) -> list[Any]:
    """The members of a JSON object, None for missing ones; TypeError if it is not an object."""
    if not isinstance(document, dict):
        raise TypeError(f"{_short_repr(document)} has no {names[0]}")
    return [document.get(name) for name in names]


def _sorted_texts(value: Any) -> Iterator[bytes]:
    """The texts of a JSON value, those of lists and maps sorted as in Java: by UTF-16."""
    if isinstance(value, str):
        yield value.encode()
    elif isinstance(value, list | dict):
        for item in sorted(set(value), key=lambda text: text.encode("utf-16-be")):
            yield from _sorted_texts(item)
            yield from _sorted_texts(value[item] if isinstance(value, dict) else None)
    elif value is True:
        yield b"\1"
    elif value not in (None, False):
        raise TypeError(f"{_short_repr(value)} is no text")


# ---- JSON ----------------------------------------------------------------------------------------


class RefusedError(Exception):
    """A record that is not part of a registry: the code of its finding, and the message."""


def depth_of(data: bytes) -> int:
    """How deep brackets are nested at most, outside of strings.

    >>> depth_of(b'{"a": [1, "[[["]}')
    2
    """
    brackets = np.frombuffer(_STRING.sub(b"", data).translate(None, _NO_BRACKETS), np.uint8)
    opens = (brackets == ord("[")) | (brackets == ord("{"))
    return int((opens * np.int32(2) - np.int32(1)).cumsum(dtype=np.int32).max(initial=0))


def parse(data: bytes, code: str) -> Any:
    """Parse JSON, if it is neither too large nor too deep.

    Args:
        data: the text in UTF-8.
        code: the code of the finding for text that is not JSON.

    Raises:
        RefusedError: it is not parsed.
    """
    text = _decode_text(data, code)
    if (depth := depth_of(data)) > DEPTH_MAX:
        raise RefusedError("too-deep", f"{depth} brackets in brackets")
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        if b"\\u" in data:  # half of a surrogate pair is not text
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise RefusedError("too-deep", f"{depth} brackets in brackets") from None
    except ValueError as error:
        raise RefusedError(code, f"{error}; it begins with {_short_repr(data[:40])}") from None
    return value


def _decode_text(data: bytes, code: str) -> str:
    """Bytes as text, if they are not too many."""
    if len(data) > BYTES_MAX:
        raise RefusedError("too-large", f"more than {BYTES_MAX >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RefusedError(code, f"not UTF-8 at byte {error.start}") from None


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _short_repr(value: object) -> str:
    return repr(value[:100] if isinstance(value, (str, bytes)) else value)[:120]


def _document(data: bytes, code: str) -> dict[str, Any]:
    value = parse(data, code)
    if not isinstance(value, dict):
        raise RefusedError(code, f"{_short_repr(value)} is not a JSON object")
    return value


def _field(document: Mapping[str, Any], name: str, least: int | None = None) -> Any:
    """The value of a field: a text that is not empty; with `least`, a number of at least that."""
    value = document.get(name)
    expected = "a text" if least is None else f"a number from {least} on"
    is_text = isinstance(value, str) and value
    is_number = type(value) is int
    if not (is_text if least is None else is_number and value in range(least, 2**31)):
        raise RefusedError("record-field", f"{name} is {_short_repr(value)}, not {expected}")
    return value


# ---- records -------------------------------------------------------------------------------------


class Replay:
    """The state of a registry, built from records in their order, and from files.

    Attributes:
        path, offset, timestamp_ms: the present record's; a registry's answer has no offset.
    """

    def __init__(self) -> None:
        """Start without schemas."""
        self.path = ""
        self.offset: int | None = 0
        self.timestamp_ms: int | None = 0
        self._schemas: dict[tuple[str, int], Schema] = {}
        #: Schemas whose version another id has now, keyed by subject, version and their own id.
        self._replaced: dict[tuple[str, int, int | None], Schema] = {}
        #: Subject -> its versions, as a heap: a deletion removes each version once.
        self._versions: defaultdict[str, list[int]] = defaultdict(list)
        self._files: list[Schema] = []
        self._texts: dict[tuple[str, int], Schema] = {}
        self._findings: list[SchemaFinding] = []
        self._counts: Counter[str] = Counter()
        self._bytes = 0

    def note(self, code: str, message: str, path: str, offset: int | None = None) -> None:
        """Note a finding; only the first ones of each code are kept."""
        self._counts[code] += 1
        if self._counts[code] > PER_CODE_MAX:
            message = "there are more like these, which are not listed"
        if self._counts[code] <= PER_CODE_MAX + 1:
            self._findings.append(SchemaFinding(code, CODES[code][0], path, offset, message))

    def feed(self, key: bytes | None, value: bytes | None) -> None:
        """Apply the next record.

        Raises:
            LimitExceededError: all texts are larger than `TOTAL_BYTES_MAX`.
        """
        self._bytes += len(value or b"")
        if self._bytes > TOTAL_BYTES_MAX:
            raise LimitExceededError(f"more than {TOTAL_BYTES_MAX >> 20} MiB of schemas")
        try:
            self._apply_record(key, value)
        except RefusedError as error:
            self.note(error.args[0], error.args[1], self.path, self.offset)

    def feed_file(self, path: str, kind: str, subject: str, data: bytes) -> None:
        """Process a file with one schema.

        Args:
            path: its path.
            kind: AVRO, PROTOBUF or JSON.
            subject: its name.
            data: its bytes.
        """
        try:
            text = _decode_text(data, "file-text")
            self._files.append(Schema(subject, None, None, guid_of(text), kind, text, path=path))
        except RefusedError as error:
            self.note(error.args[0], error.args[1], path)

    def _apply_record(self, raw_key: bytes | None, value: bytes | None) -> None:
        """Apply a record according to its key's `keytype`; RefusedError if that is unknown."""
        key = _document(raw_key or b"", "record-json")
        kind = key.get("keytype")
        if kind == "SCHEMA":
            subject = _field(key, "subject")
            version = _field(key, "version", 1)
            if value is None:
                self.mark(subject, version, "hard")
            else:
                self._register(subject, version, _document(value, "record-json"))
        elif kind == "DELETE_SUBJECT" and value is not None:
            last = _field(_document(value, "record-json"), "version", 1)
            subject = _field(key, "subject")
            versions = self._versions[subject]
            while versions and versions[0] <= last:
                self.mark(subject, heappop(versions), "soft")
        elif kind not in (*_PASSED, "DELETE_SUBJECT"):
            raise RefusedError("key-unknown", f"keytype {_short_repr(kind)}")

    def mark(self, subject: str, version: int, deletion: Deletion) -> None:
        """Mark a version as deleted, if it exists."""
        schema = self._schemas.get((subject, version))
        if schema is not None and schema.deleted != "hard":
            self._schemas[subject, version] = replace(schema, deleted=deletion)

    def _register(self, subject: str, version: int, document: dict[str, Any]) -> None:
        """Process a schema's record: a new one, or the same one with another mark of deletion."""
        stated = (document.get("subject"), document.get("version"))
        if stated != (subject, version):
            message = (
                f"the key is for {_short_repr((subject, version))}, "
                f"the value for {_short_repr(stated)}"
            )
            raise RefusedError("record-field", message)
        schema = self._schema_of(subject, version, document)
        assert schema.id is not None
        first = self._texts.setdefault((schema.context, schema.id), schema)
        if first.text != schema.text:
            raise RefusedError(
                "id-two-texts",
                f"id {schema.id} of {subject} {version} has another text than at offset"
                f" {first.offset} ({first.subject} {first.version})",
            )
        stored = self._schemas.get((subject, version), schema)
        if stored.id != schema.id:
            self._replaced[subject, version, stored.id] = replace(stored, deleted="hard")
            stored = self._replaced.pop((subject, version, schema.id), schema)
        self._schemas[subject, version] = replace(
            schema, path=stored.path, offset=stored.offset, timestamp_ms=stored.timestamp_ms
        )
        heappush(self._versions[subject], version)

    def _schema_of(self, subject: str, version: int, document: dict[str, Any]) -> Schema:
        """A version of a subject, from its record; notes unknown fields and types."""
        kind = document.get("schemaType") or "AVRO"
        deleted = document.get("deleted") or False
        if not isinstance(kind, str) or not isinstance(deleted, bool):
            message = f"schemaType is {_short_repr(kind)}, or deleted {_short_repr(deleted)}"
            raise RefusedError("record-field", f"{message}: not a text, or not true or false")
        references = tuple(_references(document))
        text = _field(document, "schema")
        number = _field(document, "id", 0)
        where = f"{subject} {version}"
        if unknown := sorted(set(document) - _FIELDS):
            message = f"{where} has {_short_repr(', '.join(unknown))}"
            self.note("field-unknown", message, self.path, self.offset)
        if kind not in TYPES:
            self.note("type-unknown", f"{where} is {_short_repr(kind)}", self.path, self.offset)
        return Schema(
            subject,
            version,
            number,
            self._guid(where, text, references, document),
            kind,
            text,
            references,
            "soft" if deleted else None,
            self.path,
            self.offset,
            self.timestamp_ms,
            any(word in json.dumps(document.get("ruleSet")) for word in _ENCRYPTS),
        )

    def _guid(
        self, where: str, text: str, references: Sequence[Reference], document: Mapping[str, Any]
    ) -> str | None:
        """The GUID in the record if there is one, as registries write it; else computed."""
        metadata = document.get("metadata")
        stored = document.get("md5")
        try:
            is_encrypted = "__enc__" in (_get(metadata or {}, "properties")[0] or ())
            if is_encrypted:
                message = f"{where}: the sensitive metadata is encrypted"
                self.note("encrypted", message, self.path, self.offset)
            if stored is not None:
                return str(UUID(bytes=b64decode(stored, validate=True)))
            if is_encrypted:
                return None
            return guid_of(text, references, metadata, document.get("ruleSet"))
        except (TypeError, ValueError, AttributeError) as error:
            self.note("guid", f"{where}: {error}", self.path, self.offset)
            return None

    # ---- the answer ------------------------------------------------------------------------------

    def answer(self) -> Schemas:
        """The schemas, sorted by subject and version, files last, and all findings."""
        unsorted = (*self._schemas.values(), *self._replaced.values())
        schemas = sorted(
            unsorted, key=lambda schema: (schema.subject, schema.version or 0, schema.id or 0)
        )
        for schema in (*schemas, *self._files):
            if schema.type in ("AVRO", "JSON"):  # types that are written in JSON
                try:
                    parse(schema.text.encode(), "schema-json")
                except RefusedError as error:
                    self._note_of(error.args[0], schema, error.args[1])
        self._check_contexts(schemas)
        self._check_references(schemas)
        return Schemas((*schemas, *self._files), tuple(self._findings))

    def _note_of(self, code: str, schema: Schema, message: str) -> None:
        name = schema.subject if schema.version is None else f"{schema.subject} {schema.version}"
        self.note(code, f"{name}: {message}", schema.path, schema.offset)

    def _check_contexts(self, schemas: Iterable[Schema]) -> None:
        """Note an id that names different schemas in two contexts."""
        seen: dict[int | None, Schema] = {}
        for schema in schemas:
            first = seen.setdefault(schema.id, schema)
            if first.context != schema.context and first.text != schema.text:
                self._note_of(
                    "id-in-contexts",
                    schema,
                    f"id {schema.id} is another schema in context {first.context}",
                )

    def _check_references(self, schemas: Sequence[Schema]) -> None:
        """Note references to missing versions, and schemas that refer to themselves in a circle."""
        from graphlib import CycleError, TopologicalSorter  # imported late: few programs need it

        versions = {(schema.subject, schema.version) for schema in schemas}
        latest = {schema.subject: schema.version for schema in schemas if schema.deleted is None}
        graph = TopologicalSorter[tuple[str, int | None]]()
        for schema in schemas:
            referred = []
            for reference in schema.references:
                subject = reference.subject_in(schema.context)
                subject_version = (
                    subject,
                    latest.get(subject) if reference.version == -1 else reference.version,
                )
                referred.append(subject_version)
                if subject_version not in versions:
                    message = (
                        f"no version {reference.version} of {subject}, "
                        f"for {_short_repr(reference.name)}"
                    )
                    self._note_of("reference-missing", schema, message)
            graph.add((schema.subject, schema.version), *referred)
        done: set[tuple[str, int | None]] = set()
        try:
            graph.prepare()
        except CycleError:
            while ready := graph.get_ready():
                done.update(ready)
                graph.done(*ready)
            for schema in schemas:
                if (schema.subject, schema.version) not in done:
                    self._note_of("reference-cycle", schema, "its references lead into a circle")


def _references(document: Mapping[str, Any]) -> Iterator[Reference]:
    """The references in the record of a schema."""
    references = document.get("references") or []
    if not isinstance(references, list) or not all(
        isinstance(reference, dict) for reference in references
    ):
        raise RefusedError(
            "record-field", f"references is {_short_repr(references)}, not a list of objects"
        )
    for reference in references:
        yield Reference(
            _field(reference, "name"),
            _field(reference, "subject"),
            _field(reference, "version", -1),
        )
