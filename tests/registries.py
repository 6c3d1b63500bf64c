"""A registry in memory, its topic in a data directory, and topics that its serializers wrote."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any
from uuid import UUID

from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext

import kseg

Headers = list[tuple[str, bytes]]


class Registry:
    """A registry without a network."""

    def __init__(self) -> None:
        self.client: Any = SchemaRegistryClient.new_client({"url": "mock://"})

    def register(
        self, subject: str, text: Any, kind: str = "AVRO", references: dict[str, str] | None = None
    ) -> int:
        """Register a text, or JSON; `references` are subjects by names, version 1 of each."""
        named = [SchemaReference(name, of, 1) for name, of in (references or {}).items()]
        text = text if isinstance(text, str) else json.dumps(text)
        number: int = self.client.register_schema(subject, ConfluentSchema(text, kind, named))
        return number

    def write(self, directory: Path, **more: Any) -> kseg.analysis.schemas.Schemas:  # type: ignore[name-defined]
        """The topic of the registry in a data directory; returns what kseg reads of it."""
        keys, values = [], []
        for subject in self.client.get_subjects():
            for version in self.client.get_versions(subject):
                one = self.client.get_version(subject, version)
                key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
                value = {
                    "subject": subject,
                    "version": version,
                    "id": one.schema_id,
                    "md5": b64encode(UUID(one.guid).bytes).decode(),
                    "schemaType": one.schema.schema_type,
                    "references": [each.to_dict() for each in one.schema.references or ()],
                    "schema": one.schema.schema_str,
                    "deleted": False,
                    **more,
                }
                keys.append(json.dumps(key).encode())
                values.append(json.dumps(value).encode())
        write_log(directory / "_schemas-0", values, keys)
        return kseg.schemas(directory)


def write_log(
    path: Path,
    values: list[bytes | None],
    keys: list[bytes | None] | None = None,
    headers: list[Headers] | None = None,
) -> None:
    """A partition with these records."""
    rows: dict[str, Any] = {"value": values, "timestamp": [1_000] * len(values)}
    if keys is not None:
        rows["key"] = keys
    if headers is not None:
        rows["headers"] = [[(name.encode(), value) for name, value in each] for each in headers]
    with kseg.Log.open(path, mode="append", create=True) as log:
        log.append(rows)


def context(topic: str, headers: Headers | None = None, *, key: bool = False) -> Any:
    """What a serializer is told of a record."""
    field = MessageField.KEY if key else MessageField.VALUE
    return SerializationContext(topic, field, headers)
