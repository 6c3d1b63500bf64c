"""The layouts of internal records, as `kseg/internal/schemas.json` has them, out of Kafka's jars.

Kafka's jars carry the definitions of their messages as JSON with comments. A layout is the list of
fields that one version of a message has; `kseg/internal/ORIGIN.md` says what each part means.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

Definition = dict[str, Any]
#: A text, which stays, or a comment.
_TEXT_OR_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBERS = ("int8", "int16", "int32", "int64", "uint16", "uint32", "float64")
#: The default of a tagged field that names none, by its type.
_DEFAULTS = {"bool": False, "string": "", "bytes": "", "uuid": "AAAAAAAAAAAAAAAAAAAAAA"}


def definitions(jars: Path) -> dict[str, Definition]:
    """The definitions of all messages in the jars, by name."""
    found: dict[str, Definition] = {}
    for jar in sorted(jars.glob("kafka-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if re.fullmatch(r"(?:common/)?(?:message|metadata)/\w+\.json", name):
                    commented = archive.read(name).decode()
                    text = _TEXT_OR_COMMENT.sub(lambda match: match[1] or "", commented)
                    definition = json.loads(text)
                    found[definition["name"]] = definition
    return found


def updated(table: Definition, found: dict[str, Definition], release: str) -> Definition:
    """The table with the records and the layouts of a release; older versions stay as they are."""
    table["about"] = re.sub(r"Kafka [\d.]+[\d]", f"Kafka {release}", table["about"])
    for topic in table["topics"].values():
        for record in topic["records"]:
            definition = found.get(record["value"])
            if definition is not None:
                last = range_of(definition["validVersions"])[-1]
                record["value_versions"][1] = max(record["value_versions"][1], last)
    rows = table["topics"]["__cluster_metadata"]["records"]
    there = {row["type"] for row in rows}
    for definition in found.values():
        if definition["type"] == "metadata" and definition["apiKey"] not in there:
            versions = range_of(definition["validVersions"])
            rows.append(
                {
                    "type": definition["apiKey"],
                    "name": "_".join(_WORDS.split(definition["name"])).upper(),
                    "value": definition["name"],
                    "value_versions": [versions[0], versions[-1]],
                }
            )
            table["messages"][definition["name"]] = {}
    rows.sort(key=lambda row: row["type"])
    for name, layouts in table["messages"].items():
        if name in found:
            layouts |= {
                str(version): layout(found[name], version)
                for version in range_of(found[name]["validVersions"])
            }
    return table


def range_of(text: str, last: int = 0) -> range:
    """The versions that `0`, `1-3`, `2+` or `none` name.

    Args:
        text: as a definition has it.
        last: the version at which `2+` ends.
    """
    if text == "none":
        return range(0)
    first, dash, end = text.partition("-")
    if text.endswith("+"):
        return range(int(text[:-1]), last + 1)
    return range(int(first), int(end if dash else first) + 1)


def layout(definition: Definition, version: int) -> Definition:
    """The layout of one version of a message."""
    last = range_of(definition["validVersions"])[-1]
    flexible = version in range_of(definition["flexibleVersions"], last)
    structs = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}
    inner = _Layout(version, last, structs, flexible)
    return {"flexible": flexible, "fields": inner.fields(definition["fields"])}


class _Layout:
    """Translates the fields of one version."""

    def __init__(
        self, version: int, last: int, structs: dict[str, list[Definition]], flexible: bool
    ) -> None:
        self._version, self._last, self._structs = version, last, structs
        self._flexible = flexible

    def fields(self, fields: list[Definition]) -> list[Definition]:
        return [self._field(field) for field in fields if self._is_there(field)]

    def _is_there(self, field: Definition) -> bool:
        return self._has(field, "versions" if "versions" in field else "taggedVersions")

    def _has(self, field: Definition, key: str) -> bool:
        return self._version in range_of(field.get(key, "none"), self._last)

    def _field(self, field: Definition) -> Definition:
        tagged = self._has(field, "taggedVersions")
        name = field["name"]
        result = {"name": name[0].lower() + name[1:], **self._type(field["type"], field)}
        if self._has(field, "nullableVersions"):
            result["nullable"] = True
            if result["type"] == "struct":
                result["null_mark"] = "varint" if tagged else "int8"
        if tagged:
            result["tag"] = field["tag"]
            result["default"] = self._default(field)
        return result

    def _type(self, kind: str, field: Definition) -> Definition:
        compact = "compact_" if self._flexible else ""
        if kind.startswith("[]"):
            return {"type": f"{compact}array", "items": self._type(kind[2:], field)}
        if kind in (*_NUMBERS, "bool", "uuid"):
            return {"type": kind}
        if kind in ("string", "bytes"):
            return {"type": compact + kind}
        return {
            "type": "struct",
            "fields": self.fields(field.get("fields") or self._structs[kind]),
        }

    def _default(self, field: Definition) -> Any:
        kind, text = field["type"], field.get("default")
        if text == "null":
            return None
        if kind.startswith("[]"):
            return []
        if kind in _NUMBERS:
            return int(str(text or 0), 0)
        if kind == "bool":
            return str(text).lower() == "true"
        if kind in _DEFAULTS:
            return _DEFAULTS[kind] if text is None else text
        inner = field.get("fields") or self._structs[kind]
        there = filter(self._is_there, inner)
        return {each["name"][0].lower() + each["name"][1:]: self._default(each) for each in there}


def text_of(table: Definition) -> str:
    """The file: a line for each record and for each version of a message."""
    topics = []
    for name, topic in table["topics"].items():
        rows = ",\n".join(f"  {json.dumps(row)}" for row in topic["records"])
        head = f' {json.dumps(name)}: {{"frame": {json.dumps(topic["frame"])}, "records": [\n'
        topics.append(f"{head}{rows}]}}")
    messages = []
    for name, layouts in table["messages"].items():
        lines = ",\n".join(f'  "{version}": {json.dumps(one)}' for version, one in layouts.items())
        messages.append(f" {json.dumps(name)}: {{\n{lines}}}")
    parts = [
        f'"about": {json.dumps(table["about"])}',
        '"topics": {\n' + ",\n".join(topics) + "}",
        f'"embedded": {json.dumps(table["embedded"])}',
        '"messages": {\n' + ",\n".join(messages) + "\n}",
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"
