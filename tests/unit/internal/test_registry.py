"""A registry's records: deletions, ids, references, GUIDs, and bytes that are none of these."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any
from uuid import UUID

import pytest

from kseg.errors import LimitExceededError
from kseg.internal import registry
from kseg.internal.registry import CODES, Reference, Replay, Schemas, guid_of

STRING = '{"type":"string"}'
INT = '{"type":"int"}'


def key(kind: str, **fields: Any) -> bytes:
    """A key in the form of Confluent's registry."""
    magic = 1 if kind == "SCHEMA" else 0
    return json.dumps({"keytype": kind, **fields, "magic": magic}).encode()


def schema(subject: str, version: int, number: int, text: str = STRING, **more: Any) -> Any:
    """The record of a schema."""
    fields = {"subject": subject, "version": version, "id": number, **more}
    value = {**fields, "schema": text, "deleted": more.get("deleted", False)}
    return key("SCHEMA", subject=subject, version=version), json.dumps(value).encode()


def tombstone(subject: str, version: int) -> Any:
    return key("SCHEMA", subject=subject, version=version), None


def replayed(*records: tuple[bytes | None, bytes | None]) -> Schemas:
    replay = Replay()
    for offset, (one, value) in enumerate(records):
        replay.path, replay.offset, replay.timestamp_ms = "x.log", offset, 1000 + offset
        replay.feed(one, value)
    return replay.answer()


def codes(found: Schemas) -> list[str]:
    return [finding.code for finding in found.findings]


def test_versions_are_in_order_with_their_types() -> None:
    found = replayed(
        schema("b", 2, 8, INT),
        schema("b", 1, 7),
        schema("a", 1, 9, 'syntax = "proto3";', schemaType="PROTOBUF"),
        schema("c", 1, 10, "{}", schemaType="JSON"),
    )
    assert [(one.subject, one.version, one.id, one.type) for one in found] == [
        ("a", 1, 9, "PROTOBUF"),
        ("b", 1, 7, "AVRO"),
        ("b", 2, 8, "AVRO"),
        ("c", 1, 10, "JSON"),
    ]
    assert codes(found) == []
    assert found.by_version("b").id == 8
    assert found.by_version("b", 1).text == STRING
    assert found.by_guid(UUID(found[1].guid)).id == 7
    assert (found[0].offset, found[0].timestamp_ms, found[0].path) == (2, 1002, "x.log")
    assert repr(found) == "Schemas(4 schemas, 0 findings)"


def test_ids_of_deleted_schemas_resolve() -> None:
    found = replayed(
        schema("a", 1, 7),
        schema("a", 2, 8, INT),
        schema("a", 1, 7, deleted=True),
        schema("b", 1, 9, '"long"'),
        (key("DELETE_SUBJECT", subject="b"), b'{"subject":"b","version":1}'),
        schema("c", 1, 10, '"double"'),
        schema("c", 1, 10, '"double"', deleted=True),
        tombstone("c", 1),
    )
    assert [(one.subject, one.deleted) for one in found] == [
        ("a", "soft"),
        ("a", None),
        ("b", "soft"),
        ("c", "hard"),
    ]
    assert [found.by_id(number).text for number in (7, 8, 9, 10)] == [
        STRING,
        INT,
        '"long"',
        '"double"',
    ]
    assert found[0].offset == 0
    with pytest.raises(LookupError, match="b has no version that is not deleted"):
        found.by_version("b")
    assert found.by_version("b", 1).id == 9
    with pytest.raises(LookupError, match="none is not a subject here"):
        found.by_version("none")
    with pytest.raises(LookupError, match="b has no version 3"):
        found.by_version("b", 3)
    with pytest.raises(LookupError, match="has id 99"):
        found.by_id(99)
    with pytest.raises(LookupError, match="has GUID"):
        found.by_guid("00000000-0000-0000-0000-000000000000")


def test_a_subject_that_is_registered_again_counts_as_new() -> None:
    delete = (key("DELETE_SUBJECT", subject="a"), b'{"subject":"a","version":2}')
    found = replayed(schema("a", 1, 7), delete, schema("a", 3, 7), schema("a", 1, 9, INT))
    assert [(one.version, one.id, one.deleted) for one in found] == [
        (1, 7, "hard"),
        (1, 9, None),
        (3, 7, None),
    ]
    assert found.by_id(7).version == 3
    assert found.by_version("a", 1).id == 9
    # Registries write tombstones, and a CLEAR_SUBJECT behind them.
    cleared = (key("CLEAR_SUBJECT", subject="a"), b'{"subject":"a"}')
    ended = replayed(schema("a", 1, 7), delete, tombstone("a", 1), cleared)
    assert [one.deleted for one in ended] == ["hard"]


def test_a_version_that_changes_its_id_and_changes_it_back_is_there_once() -> None:
    found = replayed(schema("a", 1, 7), schema("a", 1, 8, INT), schema("a", 1, 7))
    assert [(one.id, one.deleted, one.offset) for one in found] == [(7, None, 0), (8, "hard", 1)]


def test_many_versions_and_deletions_take_no_longer_than_their_number() -> None:
    delete = (key("DELETE_SUBJECT", subject="a"), b'{"subject":"a","version":1}')
    many = [schema("a", version, version) for version in range(2, 5_000)]
    found = replayed(*many, *[delete] * 5_000)
    assert {one.deleted for one in found} == {None}


def test_records_without_schemas_are_passed() -> None:
    found = replayed(
        (key("CONFIG"), b'{"compatibilityLevel":"FULL"}'),
        (key("CONFIG", subject="a"), None),
        (key("MODE", subject="a"), b'{"mode":"IMPORT"}'),
        (key("NOOP"), None),
        (key("CONTEXT", tenant="default", context=".eu"), b"{}"),
        (key("ASSOC", tenant="t"), b"{}"),
        (key("DELETE_SUBJECT", subject="a"), None),
    )
    assert (len(found), found.findings) == (0, ())
    assert found.table_rows() == []


@pytest.mark.parametrize(
    ("first", "value", "code", "words"),
    [
        (None, b"{}", "record-json", "Expecting value"),
        (b"\xff", b"{}", "record-json", "not UTF-8 at byte 0"),
        (b"plain", b"{}", "record-json", "Expecting value"),
        (b"[1]", b"{}", "record-json", "not a JSON object"),
        (b'{"keytype":"SCHEMA","a":NaN}', b"{}", "record-json", "NaN"),
        (b'{"keytype":"SCHEMA","a":"\\ud800"}', b"{}", "record-json", "surrogates"),
        (b'{"a":' + b"9" * 5000 + b"}", b"{}", "record-json", "digits"),
        (b"[" * 100_000, b"{}", "too-deep", "100000 brackets"),
        (b'{"keytype":"NEXT"}', b"{}", "key-unknown", "'NEXT'"),
        (b'{"keytype":["SCHEMA"]}', b"{}", "key-unknown", "SCHEMA"),
        (b"{}", b"{}", "key-unknown", "None"),
        (key("SCHEMA", subject="a"), b"{}", "record-field", "version is None"),
        (key("SCHEMA", subject="a", version=True), b"{}", "record-field", "version is True"),
        (key("SCHEMA", subject="a", version=2**31), b"{}", "record-field", "a number from 1"),
        (key("SCHEMA", subject="", version=1), b"{}", "record-field", "subject is ''"),
        (key("SCHEMA", subject="a", version=1), b"", "record-json", "Expecting value"),
        (key("SCHEMA", subject="a", version=1), b"{}", "record-field", "(None, None)"),
        (key("SCHEMA", subject="a", version=1), schema("b", 1, 7)[1], "record-field", "'b'"),
        (key("DELETE_SUBJECT", subject="a"), b"{}", "record-field", "version is None"),
        (*schema("a", 1, -1), "record-field", "id is -1"),
        (*schema("a", 1, 7, ""), "record-field", "schema is ''"),
        (*schema("a", 1, 7, schemaType=5), "record-field", "schemaType is 5"),
        (*schema("a", 1, 7, references=5), "record-field", "references is 5"),
        (*schema("a", 1, 7, references=[5]), "record-field", "list of objects"),
        (*schema("a", 1, 7, references=[{"name": "n"}]), "record-field", "subject is None"),
    ],
)
def test_what_is_no_record_is_a_finding_and_skipped(
    first: bytes | None, value: bytes, code: str, words: str
) -> None:
    found = replayed((first, value), schema("sound", 1, 70))
    assert [one.subject for one in found] == ["sound"]
    (finding,) = found.findings
    assert (finding.code, finding.offset, finding.path) == (code, 0, "x.log")
    assert words in finding.message
    assert len(finding.message) < 600
    assert str(finding).startswith(f"{CODES[code][0]}: {code}: x.log, offset 0: ")


def test_newer_fields_and_types_are_named_and_the_rest_is_taken() -> None:
    found = replayed(schema("a", 1, 7, spam=1, ham=2), schema("b", 1, 8, "<x/>", schemaType="XML"))
    assert [(one.type, one.text) for one in found] == [("AVRO", STRING), ("XML", "<x/>")]
    assert [(one.code, one.message) for one in found.findings] == [
        ("field-unknown", "a 1 has 'ham, spam'"),
        ("type-unknown", "b 1 is 'XML'"),
    ]


def test_texts_that_no_parser_should_see_are_kept_and_named() -> None:
    deep = "[" * 100_000
    large = json.dumps({"type": "string", "doc": "x" * 10_000_000})
    found = replayed(
        schema("a", 1, 7, "plain text"), schema("b", 1, 8, deep), schema("c", 1, 9, large)
    )
    assert [one.text for one in found] == ["plain text", deep, large]
    assert codes(found) == ["schema-json", "too-deep"]


def test_what_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "BYTES_MAX", 1000)
    assert codes(replayed(schema("a", 1, 7, "x" * 1000))) == ["too-large"]
    monkeypatch.setattr(registry, "TOTAL_BYTES_MAX", 5000)
    with pytest.raises(LimitExceededError, match="of schemas"):
        replayed(*[schema("a", 1, 7, "x" * 900)] * 6)


def test_an_id_keeps_its_first_text() -> None:
    found = replayed(schema("a", 1, 7), schema("b", 1, 7), schema("c", 1, 7, INT))
    assert [(one.subject, one.text) for one in found] == [("a", STRING), ("b", STRING)]
    (finding,) = found.findings
    assert finding.code == "id-two-texts"
    assert "than at offset 0 (a 1)" in finding.message


def test_ids_count_in_their_context() -> None:
    found = replayed(
        schema("a", 1, 7), schema(":.eu:a", 1, 7, INT), schema("b", 1, 8), schema(":.eu:b", 1, 8)
    )
    assert codes(found) == ["id-in-contexts"]
    assert found.by_id(7, context=".eu").text == INT
    assert found.by_id(7, context=".").text == STRING
    assert found.by_id(8).text == STRING
    with pytest.raises(ValueError, match=r"name one context of \., \.eu"):
        found.by_id(7)


def test_references_resolve_in_their_context_and_to_deleted_schemas() -> None:
    def to(subject: str, version: int) -> list[dict[str, Any]]:
        return [{"name": "n", "subject": subject, "version": version}]

    found = replayed(
        schema("user", 1, 1),
        schema("user", 1, 1, deleted=True),
        schema("user", 2, 2, INT),
        schema("a", 1, 3, '"a"', references=to("user", 1)),
        schema("b", 1, 4, '"b"', references=to("user", -1)),
        schema(":.eu:c", 1, 5, '"c"', references=to("user", 1)),
        schema("d", 1, 6, '"d"', references=to("e", 1)),
        schema("e", 1, 7, '"e"', references=to("d", 1)),
        schema("f", 1, 8, '"f"', references=to("f", 1)),
    )
    assert found.by_id(3).references == (Reference("n", "user", 1),)
    assert [(one.code, one.message) for one in found.findings] == [
        ("reference-missing", ":.eu:c 1: no version 1 of :.eu:user, for 'n'"),
        *(("reference-cycle", f"{name} 1: its references lead into a circle") for name in "def"),
    ]


def test_metadata_that_is_encrypted_is_said() -> None:
    metadata = {"properties": {"__enc__": "true", "pin": "AbC="}, "sensitive": ["pin"]}
    found = replayed(
        schema("a", 1, 7, metadata=metadata),
        schema("b", 1, 8, metadata=metadata, md5=b64encode(bytes(16)).decode()),
    )
    assert codes(found) == ["encrypted", "encrypted"]
    assert [one.guid for one in found] == [None, "00000000-0000-0000-0000-000000000000"]


@pytest.mark.parametrize(
    "more",
    [
        {"md5": "not base64"},
        {"md5": 5},
        {"md5": "AAAA"},
        {"metadata": [1]},
        {"metadata": {"tags": "x"}, "md5": "x"},
        {"metadata": {"properties": {"a": 5}}},
        {"ruleSet": {"domainRules": [5]}},
        {"ruleSet": {"domainRules": 5}},
        {"ruleSet": 5},
        {"metadata": {"sensitive": [["x"]]}},
    ],
    ids=str,
)
def test_a_guid_that_cannot_be_known_is_none(more: dict[str, Any]) -> None:
    found = replayed(schema("a", 1, 7, **more))
    assert (found[0].guid, codes(found)) == (None, ["guid"])


def test_findings_of_one_code_are_bounded() -> None:
    found = replayed(*[(b"x", None)] * 500)
    assert len(found.findings) == registry.PER_CODE_MAX + 1
    assert "there are more" in found.findings[-1].message


# The schema and the digests of the registry's own regression test.
PERSON = (
    '{"type":"record","name":"Person","namespace":"io.confluent.kafka.example","fields":['
    '{"name":"name","type":"string"},{"name":"age","type":"int"},{"name":"ssn","type":"string"},'
    '{"name":"user","type":"io.confluent.kafka.example.User"},'
    '{"name":"address","type":"io.confluent.kafka.example.Address"}]}'
)
REFERENCES = (
    Reference("io.confluent.kafka.example.User", "User", 1),
    Reference("io.confluent.kafka.example.Address", "Address", 2),
)
METADATA = {
    "tags": {"environment": ["production", "staging"], "team": ["data-engineering"]},
    "properties": {
        "description": "Person schema for user management",
        "owner": "data-team",
        "version": "1.0.0",
    },
    "sensitive": ["ssn", "credit-card"],
}


def rule(name: str, doc: str, kind: str, mode: str, of: str, field: str, expr: str) -> Any:
    parts = {"name": name, "doc": doc, "kind": kind, "mode": mode, "type": of, "tags": ["PERSON"]}
    ends = {"onSuccess": "none", "onFailure": "error", "disabled": False}
    return {**parts, "params": {"field": field}, "expr": expr, **ends}


RULES = {
    "domainRules": [
        rule(
            *("validation-rule-1", "Validate age field", "CONDITION", "WRITE", "FIELD_VALIDATION"),
            *("age", "field.age >= 0 && field.age <= 150"),
        ),
        rule(
            *("masking-rule-1", "Mask sensitive data on read", "TRANSFORM", "READ"),
            *("DATA_MASKING", "ssn", "field.ssn = '***-**-****'"),
        ),
    ],
    "migrationRules": [
        rule(
            *("upgrade-rule-1", "Upgrade rule for field changes", "TRANSFORM", "UPGRADE"),
            *("FIELD_UPDATE", "name", "field.name = field.name.toUpperCase()"),
        ),
        rule(
            *("downgrade-rule-1", "Downgrade rule for compatibility", "TRANSFORM", "DOWNGRADE"),
            *("FIELD_DELETE", "ssn", "delete field.ssn"),
        ),
    ],
}


@pytest.mark.parametrize(
    ("bits", "guid"),
    [
        (0b000, "d629bb05-ad85-3d20-fbcb-895de3c459f7"),
        (0b001, "c0708b8f-65f6-b698-bffe-45c1dfa8987c"),
        (0b010, "2034166c-90a8-1166-0ff2-f5f62c80dbe0"),
        (0b011, "d9877161-cfdf-d8c5-4eb4-ab37ed50e9d5"),
        (0b100, "5c08d70e-5347-41b2-6369-199425d044eb"),
        (0b101, "96825311-eb10-b7f5-48be-2a023b4c018e"),
        (0b110, "3619d8e0-2ee8-de51-0d9e-2520d39174d5"),
        (0b111, "589556fb-ad98-e8e0-94fa-e6da3455433a"),
    ],
)
def test_guids_are_those_of_the_registry(bits: int, guid: str) -> None:
    references = REFERENCES if bits & 4 else ()
    metadata, rules = METADATA if bits & 2 else None, RULES if bits & 1 else None
    assert guid_of(PERSON, references, metadata, rules) == guid
    more = {"references": [one._asdict() for one in references]}
    more |= {"metadata": metadata} if bits & 2 else {}
    more |= {"ruleSet": rules} if bits & 1 else {}
    assert replayed(schema("Person", 1, 7, PERSON, **more))[0].guid == guid


def test_maps_are_hashed_in_the_order_of_java() -> None:
    # UTF-16 puts a character beyond the first plane in front of U+FF5E; code points do not.
    metadata = {"properties": {"\uff5e": "b", "\U0001f600": "a"}}
    turned = {"properties": dict(reversed(metadata["properties"].items()))}
    assert guid_of("x", (), metadata) == guid_of("x", (), turned)
    joined = "x\x01" + "\U0001f600" + "a" + "\uff5e" + "b"
    assert guid_of("x", (), metadata) == guid_of(joined)
