"""Typed keys and values: the schema of a column, and the decoding of each record to it.

A column has one Arrow type, which is known before a record is read and is the same for any range of
records: that of one schema, the column's. Each record is read by the schema that it names, and
brought to that type. Nothing is asked for over a network, and nothing that a schema names is
opened.
"""

from __future__ import annotations

import json
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import numpy as np

from kseg.constants import INT32_MAX, Bools
from kseg.decode.payloads import (
    Decoder,
    Group,
    Reasons,
    SchemaNames,
    split_by_schema,
    with_indexes,
)
from kseg.errors import LimitExceededError, SchemaError
from kseg.extras import require
from kseg.format.typed import Kinds, has_schemas, kinds_of, reason_column
from kseg.format.values import BinaryColumn, Kind, RecordColumns, TypedColumn, binary_column
from kseg.internal.registry import Schema, Schemas

if TYPE_CHECKING:
    import pyarrow as pa

#: Word of `decode` -> the kind of schema it needs; the other words take any kind, or no schema.
_TYPES: Final = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
_WORDS: Final = {kind: word for word, kind in _TYPES.items()}
#: The most references of a schema, indirect ones and repetitions included; and the most names that
#: a message lists.
REFERENCES_MAX: Final = 10_000
_NAMES_MAX: Final = 20
#: The number of first values of a column from which the type of all is inferred.
SAMPLE_ROWS: Final = 1_000
#: The most schemas and messages of Protobuf that are looked up: each takes a run of the compiler.
MESSAGES_MAX: Final = 2_000
#: The most ids without a schema that are named in warnings.
_UNKNOWN_MAX: Final = 100
_MICROSECOND: Final = timedelta(microseconds=1)
#: What the caller can do where a column has no schema, or several.
_WAYS: Final = (
    "name a subject, a schema or one record type, read one topic at a time, or decode as "
    "registry-json"
)


class Choice(NamedTuple):
    """The caller's choice of schemas for a scan.

    Attributes:
        schemas: the schemas of the registry; None if there is no registry.
        subject, schema_version: the column's schema; if both are None, the latest version of the
            subject `<topic>-value` or `<topic>-key` that is not deleted.
        schema: the column's schema, or its id.
        record: the wanted record type, or message; the message that payloads name if None.
        indexes: how payloads of Protobuf name a message: in zigzag varints (""), in others
            ("unsigned-indexes"), or not at all ("no-indexes").
    """

    schemas: Schemas | None = None
    subject: str | None = None
    schema_version: int | None = None
    schema: Schema | int | None = None
    record: str | None = None
    indexes: str = ""


def decodings(
    decode: Any,
    choice: Choice,
    topics: Iterable[str | None],
    sample: Callable[[str], Any],
) -> Kinds:
    """The kinds that a `decode=` asks for; kinds with schemas have their Arrow types.

    Args:
        decode: "key" or "value" -> a kind; or only a kind, which is for values.
        choice: the schemas.
        topics: the topics of the records.
        sample: returns the first payloads of a column, given its name.

    Raises:
        SchemaError: a column has no schema, or several; or its schema has no Arrow type.
        ValueError, TypeError: a word, or an argument, has a value that it cannot have.
    """
    named = dict(decode) if isinstance(decode, Mapping) else {"value": decode}
    typed = {name: word for name, word in named.items() if has_schemas(word)}
    kinds = kinds_of({**named, **dict.fromkeys(typed, "text")})
    if choice.schemas is not None and not isinstance(choice.schemas, Schemas):
        raise TypeError(f"schemas is what kseg.schemas(PATHS) returns, not {choice.schemas!r}")
    topic_names = sorted({topic for topic in topics if topic is not None})
    for name, word in typed.items():
        kinds[name] = _resolved_decoding(word, choice, name, topic_names, sample)
    return kinds


def _resolved_decoding(
    spec: Any, choice: Choice, column_name: str, topics: list[str], sample: Callable[[str], Any]
) -> Decoding:
    """The decoding that the `decode` of one column asks for.

    Args:
        spec: a word of `decode`, a schema of the registry, a type of Arrow, or a JSON schema.
        choice: the schemas, and the record in them.
        column_name: the column.
        topics: the names of the topics that are read.
        sample: returns payloads of a column, from which types and the message of Protobuf are
            found.
    """
    if spec == "json:struct":
        structs: Any = require("kseg.decode.json_struct", extra="arrow")
        return _without_schema(spec, structs.decoder_of_type(structs.infer(sample(column_name))))
    if isinstance(spec, Schema):
        choice, spec = choice._replace(schema=spec), _WORDS[spec.type]
    elif not isinstance(spec, str):
        is_arrow = type(spec).__module__.startswith("pyarrow")
        if not is_arrow and not isinstance(spec, Mapping):
            raise TypeError(
                f'decode is a dict such as {{"value": "json"}}, or has a schema, not {spec!r}'
            )
        structs = require("kseg.decode.json_struct", extra="arrow")
        decoder_from = structs.decoder_of_type if is_arrow else structs.decoder_of_schema
        return _without_schema("json", decoder_from(_struct_of(spec)))
    if spec == "registry-json":
        pyarrow: Any = require("pyarrow", extra="arrow")
        if choice.schemas is None:
            raise SchemaError(f"decode={spec!r} needs schemas=kseg.schemas(PATHS)")
        return Decoding(spec, pyarrow.string(), choice, None)
    spec, _, indexes = spec.partition(":")
    choice = choice._replace(indexes=indexes)
    column = _column_schema(choice, column_name, topics)
    if spec != "registry" and column.type != _TYPES[spec]:
        raise SchemaError(f"{column.subject} is a schema of {column.type}, not of {_TYPES[spec]}")
    if column.type == "PROTOBUF" and spec == "registry" and choice.record is None:
        message_names = _messages(choice, column, sample(column_name), column_name)
        if len(message_names) > 1:
            raise SchemaError(
                f"{column.subject}: the payloads are of several messages: "
                f'{_names_of(message_names)}; choose one (record=), or decode as "registry-json"'
            )
        choice = choice._replace(record=next(iter(message_names), None))
    decoding = Decoding(spec, None, choice, column)
    decoder = decoding.decoder_of(column, ())
    if isinstance(decoder, str):  # the reason why there is none
        raise SchemaError(decoder)
    if column.encrypts:
        warnings.warn(
            f"kseg: clients encrypt fields of {column.subject}; encrypted values stay as they are",
            UserWarning,
            stacklevel=2,
        )
    return replace(decoding, type=decoder.type)


def _messages(choice: Choice, column: Schema, payloads: Any, name: str) -> list[str]:
    """The messages that payloads name in their prefixes."""
    arrow: Any = require("kseg.arrow", extra="arrow")
    protobuf: Any = require("kseg.decode.protobuf", extra="protobuf")
    finder, names = Decoding("registry", None, choice, column), dict[str, None]()
    groups, _reasons = split_by_schema(
        arrow.binary_column_of(payloads, name), headers=None, name=name
    )
    for group, schema_names in groups:
        schema = finder.schema_of(group.schema)
        if schema is None or schema.type != "PROTOBUF":
            continue
        for part in finder.by_message(group, schema_names)[0]:
            with suppress(SchemaError, LimitExceededError):
                references = references_of(schema, choice.schemas)
                names[protobuf.message_name(schema, references, part.indexes or None)] = None
    return sorted(names)


def _without_schema(word: str, made: Decoder) -> Decoding:
    """The decoding of payloads that name no schema, by a decoder with a type from elsewhere."""
    return Decoding(word, made.type, Choice(), None, made)


def _struct_of(schema: Any) -> Any:
    """A struct with the fields of an Arrow schema; any other value unchanged."""
    pyarrow: Any = require("pyarrow", extra="arrow")
    return pyarrow.struct(list(schema)) if isinstance(schema, pyarrow.Schema) else schema


def _column_schema(choice: Choice, name: str, topics: list[str]) -> Schema:
    """The schema of a column; see `Choice`."""
    schemas = choice.schemas
    if isinstance(choice.schema, Schema):
        return choice.schema
    if schemas is None:
        raise SchemaError("typed values need schemas=kseg.schemas(PATHS), or schema=")
    if choice.schema is not None:
        return schemas.by_id(choice.schema)
    by_subject: dict[str, Schema] = {}
    for subject in [choice.subject] if choice.subject else [f"{topic}-{name}" for topic in topics]:
        # The subjects of Confluent's strategies: topic, topic and record, record.
        record_subjects = (subject.removesuffix(name) + str(choice.record), choice.record)
        for candidate in (
            subject,
            *(other for other in record_subjects if choice.record and other),
        ):
            try:
                by_subject.setdefault(subject, schemas.by_version(candidate, choice.schema_version))
            except LookupError as error:
                missing = error
        if subject not in by_subject:
            near = [schema.subject for schema in schemas if schema.deleted is None]
            raise SchemaError(f"{missing}; subjects: {_names_of(near)}; {_WAYS}")
    if len({(schema.text, schema.type) for schema in by_subject.values()}) != 1:
        raise SchemaError(f"the topics have different schemas: {_names_of(by_subject)}; {_WAYS}")
    return next(iter(by_subject.values()))


def _names_of(names: Iterable[str]) -> str:
    different = list(dict.fromkeys(names))
    more = f" and {len(different) - _NAMES_MAX} more" if len(different) > _NAMES_MAX else ""
    return ", ".join(different[:_NAMES_MAX]) + more if different else "none"


@dataclass(eq=False)
class Decoding:
    """Decodes a column whose payloads have schemas; for `kseg.format.typed`.

    Attributes:
        value: the word of `decode` for it.
        type: the Arrow type of every value.
        choice: the schemas.
        column: the schema of the column; None for JSON of any schema.
        bare: decodes payloads that name no schema, by a type from elsewhere; None if they do.
    """

    # `_made` caches schemas, names, and decoders or the reasons why there are none; see its uses
    # for the keys.

    value: str
    type: Any
    choice: Choice = field(repr=False)
    column: Schema | None
    bare: Decoder | None = field(default=None, repr=False)
    _made: dict[Any, Any] = field(default_factory=dict, repr=False)
    _unknown: set[int | UUID] = field(default_factory=set, repr=False)

    @property
    def needs(self) -> tuple[str, ...]:
        """The other fields that it needs: headers may name schemas."""
        return ("headers",) if self.value in ("registry", "registry-json") else ()

    def __getstate__(self) -> dict[str, Any]:
        """The fields without the cache, which is filled again."""
        return {**self.__dict__, "_made": {}}

    def decode(
        self, columns: RecordColumns, name: str
    ) -> tuple[tuple[TypedColumn, ...], Bools | None]:
        """Decode a column.

        Args:
            columns: the records, with the column and the fields that it `needs`.
            name: "key" or "value".

        Returns:
            The values, the reasons of nulls, the ids and the names of schemas; and bool[n], the
            rows to keep, or None for all.
        """
        column, count = columns[name], len(columns)
        arrow: Any = require("kseg.arrow", extra="arrow")
        payloads = arrow.binary_array(column)
        ids = np.full(count, -1, np.int32)
        types = _Types(column)
        if self.needs:
            headers = columns.arrays.get("headers")
            values, reasons = self._decode_framed(
                payloads, split_by_schema(column, headers, name), ids, types
            )
        else:
            assert self.column is not None or self.bare is not None
            made: Any = self.bare or self.decoder_of(self.column, ())  # type: ignore[arg-type]
            values, reasons = made.decode(payloads)
        errors = TypedColumn(Kind.TEXT, reason_column(count, reasons))
        typed = TypedColumn(self.type, values)
        if self.value == "registry-json":
            typed = TypedColumn(Kind.JSON, arrow.binary_column_of(values, name))
        others = types.others(self.choice.record)
        if self.column is not None:  # a renamed record may be read by the column's schema
            others &= errors.values.is_valid()
        ids_column = TypedColumn(Kind.INT32, ids, ids >= 0)
        return (typed, errors, ids_column, types.column(name)), ~others if others.any() else None

    def _decode_framed(
        self,
        payloads: pa.Array,
        parts: tuple[list[tuple[Group, SchemaNames]], Reasons],
        ids: Any,
        types: _Types,
    ) -> tuple[pa.Array, Reasons]:
        """The values of payloads that name their schemas, each decoded by its own; and reasons.

        Args:
            payloads: n payloads.
            parts: the groups of the rows, and the reasons of rows in no group, as
                `split_by_schema` returns them.
            ids, types: receive the schema's id and the name of the type of each row.
        """
        pyarrow: Any = require("pyarrow", extra="arrow")
        arrow: Any = require("kseg.arrow", extra="arrow")
        groups, reasons = parts
        # The index of each row's value in the concatenated values of all groups.
        places, done = np.full(len(payloads), -1, np.int64), 0
        made: list[pa.Array] = []
        for group, decoder in self._groups(groups, reasons, ids, types):
            whole = len(group.rows) + payloads.null_count == len(payloads)
            mine = payloads if whole else payloads.take(pyarrow.array(group.rows))
            if getattr(decoder, "takes_prefix", False):
                values, failed = decoder.decode(mine, group.prefix)  # type: ignore[call-arg]
            else:
                compute: Any = require("pyarrow.compute", extra="arrow")
                values, failed = decoder.decode(compute.binary_slice(mine, group.prefix, INT32_MAX))
            if self.value == "registry-json":
                values = arrow.binary_array(json_columns(values), self.type)
            rows = np.arange(len(mine)) if whole else group.rows
            reasons.update((int(rows[at]), reason) for at, reason in failed.items())
            if whole:
                return values, reasons
            places[group.rows] = np.arange(done, done + len(values))
            done += len(values)
            made.append(values)
        # Rows without a decoder get the null after all values.
        all_values = pyarrow.concat_arrays([*made, pyarrow.nulls(1, self.type)])
        return all_values.take(pyarrow.array(np.where(places < 0, done, places))), reasons

    def _groups(
        self,
        groups: list[tuple[Group, SchemaNames]],
        reasons: Reasons,
        ids: Any,
        types: _Types,
    ) -> Iterator[tuple[Group, Decoder]]:
        """The groups that have a decoder; `reasons` receives why the others have none.

        Warns of ids without a schema. For the arguments see `_decode_framed`.
        """
        new: list[int | UUID] = []
        for group, schema_names in groups:
            named = group.schema
            ids[group.rows] = named if isinstance(named, int) and named <= INT32_MAX else -1
            schema = self.schema_of(group.schema)
            if schema is None:
                if group.schema not in self._unknown and len(self._unknown) < _UNKNOWN_MAX:
                    self._unknown.add(group.schema)
                    new.append(group.schema)
                reasons.update(dict.fromkeys(group.rows.tolist(), f"no schema has {_id(group)}"))
                continue
            if schema.id is not None:
                ids[group.rows] = schema.id
            parts = [group]
            if schema.type == "PROTOBUF":
                parts, damaged = self.by_message(group, schema_names)
                reasons.update(damaged)
            for part in parts:
                types.add(part, self._type_names(schema, part.indexes))
                made = self.decoder_of(schema, part.indexes)
                if isinstance(made, str):
                    reasons.update(dict.fromkeys(part.rows.tolist(), made))
                else:
                    yield part, made
        if new:
            warnings.warn(
                f"kseg: no schema has {_names_of(map(str, new))}: the values that name it are null",
                UserWarning,
                stacklevel=2,
            )

    def schema_of(self, named: int | UUID) -> Schema | None:
        """The schema with an id or a GUID; None if there is none."""
        schemas = self.choice.schemas
        context = None if self.column is None else self.column.context
        key = ("schema", named)
        if schemas is None:
            return None
        if key not in self._made:
            try:
                schema: Any = (
                    schemas.by_guid(named)
                    if isinstance(named, UUID)
                    else schemas.by_id(named, context=context)
                )
            except (LookupError, ValueError):
                schema = None
            self._made[key] = schema
        return self._made[key]  # type: ignore[no-any-return]

    def by_message(self, group: Group, schema_names: SchemaNames) -> tuple[list[Group], Reasons]:
        """Split the rows of a Protobuf schema by message; and the reasons of damaged rows."""
        if self.choice.indexes == "no-indexes":
            return [group], {}
        return with_indexes(group, schema_names, has_sign=not self.choice.indexes)

    def _type_names(self, schema: Schema, indexes: tuple[int, ...]) -> list[str]:
        """The name of the record, message or JSON schema, or of each branch of a union of Avro."""
        key = ("names", schema.type, schema.subject, schema.text, indexes)
        if key not in self._made:
            self._made[key] = _type_names(schema, self.choice.schemas, indexes)
        names: list[str] = self._made[key]
        return names

    def decoder_of(self, schema: Schema, indexes: tuple[int, ...]) -> Decoder | str:
        """The decoder of a schema, or why it has none.

        Args:
            schema: the schema of payloads.
            indexes: the indexes of the message of a Protobuf schema; empty for others.
        """
        key = (schema.type, schema.text, indexes)
        if key not in self._made:
            if indexes and len(self._made) >= MESSAGES_MAX:
                return "one of more different messages than are looked up"
            try:
                self._made[key] = self._new_decoder(schema, indexes)
            except (SchemaError, LimitExceededError) as error:
                self._made[key] = f"schema {schema.id} of {schema.subject}: {error}"
        made: Decoder | str = self._made[key]
        return made

    def _new_decoder(self, schema: Schema, indexes: tuple[int, ...]) -> Decoder:
        """As `decoder_of`, for a schema that is not in the cache.

        Raises:
            SchemaError: it has no decoder, or none for the column's type.
            LimitExceededError: the compiler of Protobuf takes too long.
        """
        column, schemas = self.column or schema, self.choice.schemas
        references = references_of(schema, schemas)
        if schema.type != column.type:
            raise SchemaError(f"it is of {schema.type}, and the column's is of {column.type}")
        made: Decoder
        if schema.type == "AVRO":
            avro: Any = require("kseg.decode.avro", extra="avro")
            column_references, record = references_of(column, schemas), self.choice.record
            made = avro.decoder(schema, self.column, references, column_references, record=record)
        elif schema.type == "JSON":
            structs: Any = require("kseg.decode.json_struct", extra="arrow")
            made = structs.decoder_of_schema(column.text)
        else:
            protobuf: Any = require("kseg.decode.protobuf", extra="protobuf")
            # A message is read by the column's schema: fields match by number.
            message = indexes or None if self.column is None else self.choice.record
            made = protobuf.decoder(column, references_of(column, schemas), message)
            if self.column is not None and indexes:
                name = protobuf.message_name(schema, references, indexes)
                if name != made.name:  # type: ignore[attr-defined]  # of Protobuf alone
                    raise SchemaError(f"the message is {name}, and not the column's")
        return made


def _type_names(schema: Schema, schemas: Schemas | None, indexes: tuple[int, ...]) -> list[str]:
    """As `Decoding._type_names`, uncached; the subject if a schema is damaged or nameless."""
    with suppress(SchemaError, LimitExceededError, ValueError):
        if schema.type == "JSON":
            parsed = json.loads(schema.text)
            return [str(parsed.get("title", schema.subject))]
        references = references_of(schema, schemas)
        if schema.type == "PROTOBUF":
            protobuf: Any = require("kseg.decode.protobuf", extra="protobuf")
            return [protobuf.message_name(schema, references, indexes or None)]
        avro_schema: Any = require("kseg.decode.avro_schema", extra="avro")
        return list(avro_schema.type_names(schema, references))
    return [schema.subject]


class _Types:
    """The name of the type of each row.

    Attributes:
        codes: int32[n], indexes of `names`; -1 where no type is known.
        names: the names of types.
    """

    def __init__(self, payloads: BinaryColumn) -> None:
        """Begin without a type for any row."""
        self._payloads = payloads
        self.codes = np.full(len(payloads), -1, np.int32)
        self.names: list[str] = []

    def add(self, part: Group, names: list[str]) -> None:
        """Note the types of some rows.

        Args:
            part: the rows.
            names: the name of their type; or those of the branches of a union, one of which each
                payload selects.
        """
        branches: Any = 0
        if len(names) > 1:  # the first byte of a value is enough for the number of its branch
            payloads = self._payloads
            has_value = payloads.sizes()[part.rows] > part.prefix
            firsts = payloads.offsets[part.rows[has_value]] + part.prefix
            branches = np.full(len(part.rows), INT32_MAX)
            branches[has_value] = payloads.data[firsts] >> 1  # a zigzag number
            branches[branches >= len(names)] = -1 - len(self.names)  # so that the code is -1
        self.codes[part.rows] = len(self.names) + branches
        self.names.extend(names)

    def others(self, record: str | None) -> Bools:
        """bool[n]: rows of another type than `record`, a name with or without its package."""
        if record is None:
            return np.zeros(len(self.codes), np.bool_)
        is_record = np.array([f".{name}".endswith(f".{record}") for name in self.names] + [True])
        others: Bools = ~is_record[self.codes]  # the code -1 refers to the last entry, True
        return others

    def column(self, name: str) -> TypedColumn:
        """The names, null where none is known."""
        arrow: Any = require("kseg.arrow", extra="arrow")
        pyarrow: Any = require("pyarrow", extra="arrow")
        codes = pyarrow.array(self.codes, mask=self.codes < 0)
        texts = pyarrow.array([text.encode() for text in self.names], pyarrow.binary())
        return TypedColumn(Kind.TEXT, arrow.binary_column_of(texts.take(codes), name))


def _id(group: Group) -> str:
    return f"{'GUID' if isinstance(group.schema, UUID) else 'id'} {group.schema}"


def references_of(schema: Schema, schemas: Schemas | None) -> dict[str, Schema]:
    """Name -> a schema that a schema refers to, also indirectly, in the order of dependencies.

    Raises:
        SchemaError: a referenced schema is missing, or refers to itself.
    """
    by_name: dict[str, Schema] = {}
    waiting, seen = [("", schema)], 0
    while waiting:
        name, referring = waiting.pop()
        seen += 1
        if seen > REFERENCES_MAX:
            raise SchemaError(
                f"{schema.subject} has more than {REFERENCES_MAX} references, or they form a circle"
            )
        by_name.pop(name, None)
        by_name[name] = referring
        for reference in referring.references:
            subject = reference.subject_in(referring.context)
            try:
                version = None if reference.version == -1 else reference.version
                referred = (schemas or Schemas(())).by_version(subject, version)
            except LookupError as error:
                raise SchemaError(f"{schema.subject} refers to {reference.name}: {error}") from None
            waiting.append((reference.name, referred))
    del by_name[""]
    return dict(reversed(by_name.items()))


# ---- JSON ----------------------------------------------------------------------------------------


def json_columns(values: pa.Array) -> BinaryColumn:
    """Values as JSON: bytes in base64, times in ISO 8601, decimals as text; null stays null."""
    rows = values.to_pylist(maps_as_pydicts="lossy")
    return binary_column([None if row is None else _json(row).encode() for row in rows])


def _json(value: Any) -> str:
    """A value as JSON text."""
    try:
        return json.dumps(value, default=_jsonable, allow_nan=False)
    except ValueError:  # a float that JSON does not have
        return json.dumps(_with_texts_for_floats(value), default=_jsonable)


def _jsonable(value: Any) -> str:
    """A value that JSON lacks as text: bytes as base64, times in ISO 8601, exact decimals."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, timedelta):  # as Protobuf's JSON writes a Duration
        return f"{Decimal(value // _MICROSECOND).scaleb(-6).normalize():f}s"
    return str(value) if isinstance(value, Decimal) else value.isoformat()


def _with_texts_for_floats(value: Any) -> Any:
    """A value in which the floats that JSON lacks (NaN, infinity) are texts."""
    if isinstance(value, dict):
        return {key: _with_texts_for_floats(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_with_texts_for_floats(item) for item in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
