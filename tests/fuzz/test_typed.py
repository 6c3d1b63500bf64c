"""Payloads with changed bytes: what the fast readers give is what the exact ones give.

A fiftieth of them each time, all in `make soak`.
"""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from kseg.decode.json_struct import JSON_TEXT, decoder_of_type
from kseg.decode.protobuf import decoder
from tests import json_payloads
from tests.protobuf_payloads import OLD, REFERENCES, SHOP, message, schema, spoil
from tests.shares import WHOLE

PAYLOADS = 100_000 if WHOLE else 1_000
AT_ONCE = 1_000


def plain(value: object) -> object:
    """Without an order of maps; as text, in which not-a-number equals itself."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        each = [plain(one) for one in value]
        return sorted(each, key=repr) if isinstance((each or [None])[0], tuple) else each
    if isinstance(value, tuple):
        return (value[0], plain(value[1]))
    return repr(value)


@pytest.mark.parametrize("text", [SHOP, OLD], ids=["shop", "old"])
def test_spoilt_messages_are_what_protobuf_says(text: str) -> None:
    source = Random(20261128)
    found = decoder(
        schema(text), REFERENCES if text is SHOP else {}, (0,) if text is SHOP else (1,)
    )
    good = [message(found._parse, source).SerializePartialToString() for _ in range(500)]
    null_count = 0
    for _ in range(0, PAYLOADS, AT_ONCE):
        payloads = [spoil(source.choice(good), source) for _ in range(AT_ONCE)]
        values, reasons = found.decode(pa.array(payloads, pa.binary()))
        values.validate(full=True)
        exact, wanted = [], {}
        for row, payload in enumerate(payloads):
            try:
                exact.append(found.exact(payload))
            except ValueError as error:
                exact.append(None)
                wanted[row] = str(error)
        assert reasons == wanted
        expected = pa.array(exact, found.type).to_pylist()
        for payload, value, one in zip(payloads, values.to_pylist(), expected, strict=True):
            assert plain(value) == plain(one), payload.hex()
        null_count += len(reasons)
    assert PAYLOADS / 2 < null_count < PAYLOADS


def test_spoilt_texts_are_what_pythons_reader_says() -> None:
    source = Random(20261128)
    found = decoder_of_type(json_payloads.TYPE)
    good = [json_payloads.text(source) for _ in range(500)]
    null_count = 0
    for _ in range(0, PAYLOADS, AT_ONCE):
        payloads = [json_payloads.spoil(source.choice(good), source) for _ in range(AT_ONCE)]
        values, reasons = found.decode(pa.array(payloads, pa.binary()))
        values.validate(full=True)
        for row, (payload, value) in enumerate(zip(payloads, values.to_pylist(), strict=True)):
            try:
                wanted = json_payloads.read(payload)
            except ValueError:
                wanted = None
                assert row in reasons, payload
            else:
                assert row not in reasons, (payload, reasons[row])
            if value is not None and value["any"] is not None:
                value["any"] = json_payloads.read(value["any"].encode(), JSON_TEXT)
            assert plain(value) == plain(wanted), payload
        null_count += len(reasons)
    assert PAYLOADS / 2 < null_count < PAYLOADS
