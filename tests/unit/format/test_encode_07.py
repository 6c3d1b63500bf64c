"""Message sets of Kafka 0.7: what they hold, what they never had."""

from __future__ import annotations

import pytest

from kseg.constants import Compression
from kseg.errors import InvalidRecordError
from kseg.format.encode import encode_messages_07

GZIP = Compression.GZIP


@pytest.mark.parametrize("kind", [Compression.NONE, GZIP, Compression.SNAPPY])
def test_no_payloads_are_no_message_of_07(kind: Compression) -> None:
    assert encode_messages_07([], compression=kind) == b""


@pytest.mark.parametrize(
    ("magic", "kind", "text"),
    [
        (2, 0, "magic 0 or 1, not 2"),
        (-1, 0, "magic 0 or 1, not -1"),
        (1, 3, "no lz4"),
        (1, 4, "no zstd"),
        (1, 5, "5 is not a valid"),
        (0, 1, "magic 0 have no gzip"),
    ],
)
def test_what_07_does_not_have_is_refused(magic: int, kind: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        encode_messages_07([b""], magic=magic, compression=kind)  # type: ignore[arg-type]


def test_a_null_payload_of_07_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="null") as error:
        encode_messages_07([b"", None])  # type: ignore[list-item]
    assert error.value.record_index == 1
