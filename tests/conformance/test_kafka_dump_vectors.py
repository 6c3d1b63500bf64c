"""Each vector of internal topics prints as Kafka's decoders printed it."""

from __future__ import annotations

import json
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


def printed(vector: Vector) -> Vector:
    key, value = unhex(vector["key"]), unhex(vector["value"])
    try:
        if vector["topic"] == "control":
            return {"text": control_text(key, value).removeprefix(" ")}
        key_text, payload_text = show(
            InternalTopic(vector["topic"]), vector.get("offset", 0), key, value
        )
    except InvalidRecordError:
        return {"throws": True}
    texts = {"key_text": key_text, "payload_text": payload_text}
    return {name: text for name, text in texts.items() if text is not None}


def expected(vector: Vector) -> Vector:
    if "throws" in vector:
        return {"throws": True}
    names = ("text", "key_text", "payload_text")
    return {name: vector[name].removeprefix(" ") for name in names if name in vector}


def test_every_vector_prints_as_kafka_prints_it(pytestconfig: pytest.Config) -> None:
    different = [
        (vector["topic"], vector["what"], printed(vector), expected(vector))
        for vector in vectors(pytestconfig)
        if printed(vector) != expected(vector)
    ]
    assert different == []
