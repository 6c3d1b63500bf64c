"""Each vector of internal topics prints as Kafka's decoders printed it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.kafka_dump.decoders import control_text, show
from kseg.errors import InvalidRecordError
from kseg.internal import InternalTopic

Vector = dict[str, Any]


def vectors(config: pytest.Config) -> list[Vector]:
    """Those of `internal.json`; none where there is no such file."""
    path = Path(config.getoption("--vectors")) / "internal.json"
    found: list[Vector] = json.loads(path.read_text())["vectors"]
    return found


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


#: Kafka's words for a record that its decoder passes over; here such a record is an error.
PASSED_OVER = re.compile(r"Error at (offset )?\d+, skipping|Unknown record type .*, skipping")


def printed(vector: Vector) -> Vector | None:
    """The texts of a record; None for one that is refused, or is not known."""
    key, value = unhex(vector["key"]), unhex(vector["value"])
    try:
        if vector["topic"] == "control":
            return {"text": control_text(key, value).removeprefix(" ")}
        key_text, payload_text = show(InternalTopic(vector["topic"]), key, value)
    except InvalidRecordError:
        return None
    if " is not known" in (payload_text or ""):
        return None
    texts = {"key_text": key_text, "payload_text": payload_text}
    return {name: text for name, text in texts.items() if text is not None}


def expected(vector: Vector) -> Vector | None:
    """What Kafka prints; None where it refuses the record."""
    names = ("text", "key_text", "payload_text")
    texts = {name: vector[name].removeprefix(" ") for name in names if name in vector}
    if "throws" in vector or any(map(PASSED_OVER.match, texts.values())):
        return None
    return texts


def test_every_vector_prints_as_kafka_prints_it(pytestconfig: pytest.Config) -> None:
    different = [
        (vector["topic"], vector["what"], printed(vector), expected(vector))
        for vector in vectors(pytestconfig)
        if printed(vector) != expected(vector)
        # That Kafka refuses it may be, since its own highest version is lower.
        if expected(vector) or "above the highest" not in vector["what"]
    ]
    assert different == []
