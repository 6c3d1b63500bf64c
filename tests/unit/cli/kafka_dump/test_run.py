"""The lines of Kafka's dump tool for logs: hostile bytes, terminals, large rows, several pieces."""

from __future__ import annotations

import io
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.failures import Exit
from kseg.cli.kafka_dump.decoders import internal_contents
from kseg.cli.kafka_dump.lines import DumpOptions, stored_contents, style_of
from kseg.cli.kafka_dump.run import KafkaDump
from kseg.errors import CorruptRecordError, InvalidRecordError, KsegError
from kseg.internal import InternalTopic
from tests.builders import (
    GZIP,
    batch,
    message,
    record,
    wrapper,
    write_segment,
)
from tests.reference_codecs import crc32

PLAIN = style_of(terminal=False)
ESCAPED = style_of(terminal=True)


def kafka_dump(out: io.BytesIO, path: Path, style: int = PLAIN, **options: Any) -> Exit:
    given = DumpOptions(style, deep=True, **{"parser": stored_contents, **options})
    return KafkaDump(given, out).run([str(path)])


def printed(path: Path, style: int = PLAIN, **options: Any) -> bytes:
    out = io.BytesIO()
    kafka_dump(out, path, style, **options)
    return out.getvalue().partition(b"\n")[2]


def printed_until(path: Path, reason: str, **options: Any) -> tuple[bytes, KsegError]:
    """The lines in front of the error with that reason."""
    out = io.BytesIO()
    with pytest.raises(KsegError, match=reason) as raised:
        kafka_dump(out, path, **options)
    return out.getvalue().partition(b"\n")[2], raised.value


def payloads(printed: bytes) -> list[bytes]:
    return re.findall(rb"^\|.* payload: (.*)$", printed, re.MULTILINE)


@pytest.mark.parametrize(
    ("value", "plain", "escaped"),
    [
        (b"plain", b"plain", b"plain"),
        (b'"\\', b'"\\', b'"\\'),
        (b"\x1b[2J\x07", b"\x1b[2J\x07", b"\\u001b[2J\\u0007"),
        (b"\xc2\x9b", b"\xc2\x9b", b"\\u009b"),
        (b"a\xffb", b"a\xef\xbf\xbdb", b"a\xef\xbf\xbdb"),
        (b"\xed\xa0\x80.", b"\xef\xbf\xbd.", b"\xef\xbf\xbd."),
        (b"\xed\xa0.", b"\xef\xbf\xbd.", b"\xef\xbf\xbd."),
        (b"\xed\xa0", b"\xef\xbf\xbd", b"\xef\xbf\xbd"),
        (b"\xe0\x80\x80", b"\xef\xbf\xbd" * 3, b"\xef\xbf\xbd" * 3),
        (b"\xf0\x9f\x98", b"\xef\xbf\xbd", b"\xef\xbf\xbd"),
    ],
)
def test_bytes_are_those_of_java_and_on_a_terminal_they_steer_nothing(
    tmp_path: Path, value: bytes, plain: bytes, escaped: bytes
) -> None:
    log = write_segment(tmp_path, 0, batch([record(value)]))
    assert payloads(printed(log)) == [plain]
    assert payloads(printed(log, ESCAPED)) == [escaped]


def test_names_of_headers_are_escaped_on_a_terminal(tmp_path: Path) -> None:
    headers = ((b"a\x1b", b"1"), (b"b", None))
    log = write_segment(tmp_path, 0, batch([record(b"v", headers=headers)]))
    assert b" headerKeys: [a\x1b,b] " in printed(log)
    assert b" headerKeys: [a\\u001b,b] " in printed(log, ESCAPED)


def test_a_record_larger_than_the_buffer_prints_whole(tmp_path: Path) -> None:
    headers = tuple((b"n%06d" % number, b"") for number in range(60_000))
    value = b"v" * 3_000_000
    log = write_segment(tmp_path, 0, batch([record(value, key=b"k", headers=headers)]))
    line = printed(log).splitlines()[2]
    assert b" headerKeys: [" + b",".join(name for name, _ in headers) + b"] key: k" in line
    assert line.endswith(b" payload: " + value)


def test_bytes_behind_the_last_batch_are_counted_or_refused(tmp_path: Path) -> None:
    whole = batch([record(b"v")])
    torn = write_segment(tmp_path, 0, whole, whole[:30])
    end = f"Found 30 invalid bytes at the end of {torn.name}\n".encode()
    assert printed(torn).endswith(end)
    assert not printed(torn, max_bytes=len(whole) + 30).endswith(end)
    zeros = write_segment(tmp_path, 100, whole, bytes(30))
    with pytest.raises(CorruptRecordError, match="a size of 0"):
        printed(zeros)


def test_max_bytes_prints_whole_batches_only(tmp_path: Path) -> None:
    whole = batch([record(b"v")])
    log = write_segment(tmp_path, 0, whole, batch([record(b"w")], base_offset=1))
    assert payloads(printed(log, max_bytes=len(whole))) == [b"v"]
    assert payloads(printed(log, max_bytes=len(whole) * 2 - 1)) == [b"v"]


@pytest.mark.parametrize("at", [*range(8, 12), *range(16, 77, 3)])
def test_a_changed_byte_ends_in_lines_or_in_a_typed_error(tmp_path: Path, at: int) -> None:
    data = bytearray(batch([record(b"v", key=b"k"), record(None)]))
    data[at] ^= 0xFF
    log = write_segment(tmp_path, 0, bytes(data))
    out = io.BytesIO()
    with suppress(KsegError):
        assert kafka_dump(out, log) is Exit.FOUND
    assert out.getvalue().startswith(f"Dumping {log}\nLog starting offset: 0\n".encode())


def test_lines_end_in_the_middle_of_a_control_record_that_cannot_be_read(tmp_path: Path) -> None:
    broken = batch([record(b"", key=b"\0\0\0\1")], transactional=True, control=True)
    log = write_segment(tmp_path, 0, broken, batch([record(b"v")], base_offset=1))
    lines, error = printed_until(log, "6 bytes", parser=None)
    assert isinstance(error, InvalidRecordError)
    assert (error.position, error.offset) == (0, 0)
    assert lines.endswith(b" headerKeys: []")


def test_lines_end_in_front_of_a_header_that_ends_behind_the_file(tmp_path: Path) -> None:
    short = bytes(8) + (20).to_bytes(4, "big") + bytes(4) + b"\x02" + bytes(15)
    log = write_segment(tmp_path, 0, batch([record(b"v")]), short)
    lines, error = printed_until(log, "the header ends after the file", parser=None)
    assert isinstance(error, CorruptRecordError)
    assert lines.count(b"\n") == 3


def lying(magic: int, value_size: int) -> bytes:
    """A message whose value says to have another size, its checksum right."""
    whole = message(record(b"value", key=b"k"), magic=magic, offset=5)
    at = len(whole) - 9
    entry = bytearray(whole[:at] + value_size.to_bytes(4, "big", signed=True) + whole[at + 4 :])
    entry[12:16] = crc32(bytes(entry[16:])).to_bytes(4, "big")
    return bytes(entry)


@pytest.mark.parametrize("inside", [False, True])
def test_a_value_that_lies_ends_the_lines_where_it_is_printed_and_not_before(
    tmp_path: Path, inside: bool
) -> None:
    sound, lie = message(record(b"a"), magic=1, offset=4), lying(1, 10**9)
    parts: tuple[bytes, ...] = sound, lie, message(record(b"b"), magic=1, offset=6)
    if inside:
        parts = (wrapper([], magic=1, codec=GZIP, offset=6, inner=b"".join(parts), timestamp=0),)
    log = write_segment(tmp_path, 0, *parts)
    words = "newLimit > capacity: (1000000000 > 5)"
    lines = printed(log, parser=None).splitlines()
    sizes = [re.search(rb"valueSize: (-?\d+)", line) for line in lines]
    assert [found[1] for found in sizes if found] == [b"1", b"1000000000", b"1"]
    ended, _ = printed_until(log, re.escape(words))
    assert ended.splitlines()[-2 if inside else -3].endswith(b" payload: a")
    assert re.search(rb" keySize: 1 valueSize: 1000000000 isValid: true crc: \d+}$", ended)
    for topic, text in (
        (InternalTopic.METADATA, f" payload: Error at 5, skipping. {words}"),
        (InternalTopic.REMOTE, f" payload: Error at offset 5, skipping. {words}"),
    ):
        assert text.encode() in printed(log, parser=partial(internal_contents, topic))


def test_a_value_that_lies_beside_a_key_is_a_coordinators_error(tmp_path: Path) -> None:
    log = write_segment(tmp_path, 0, lying(0, 99))
    shown = printed(log, parser=partial(internal_contents, InternalTopic.OFFSETS))
    assert shown.endswith(b" key: Error at offset 5, skipping. newLimit > capacity: (99 > 5)\n")


def test_a_batch_that_ends_inside_its_header_shows_the_bytes_behind_it(tmp_path: Path) -> None:
    whole = batch([record(b"v")], producer_id=7, producer_epoch=3, base_sequence=9)
    short = whole[:8] + (30).to_bytes(4, "big") + whole[12:]
    log = write_segment(tmp_path, 0, short)
    shown = b" count: 1 baseSequence: 9 lastSequence: 9 producerId: 7 producerEpoch: 3 "
    lines = printed_until(log, "size")[0].splitlines()
    assert shown in lines[1]
    assert b" size: 42 " in lines[1]
    assert lines[1].endswith(b" isvalid: false")
    assert len(lines) == 2


def test_every_delete_horizon_is_shown(tmp_path: Path) -> None:
    times = (-(2**63), -(2**63) + 1, 0)
    parts = [
        batch([], base_offset=at, base_timestamp=time, delete_horizon=True, last_offset_delta=0)
        for at, time in enumerate(times)
    ]
    log = write_segment(tmp_path, 0, *parts, batch([record(b"v")], base_offset=3))
    found = re.findall(rb"deleteHorizonMs: (\S+)", printed(log))
    shown = [f"OptionalLong[{time}]".encode() for time in times]
    assert found == [*shown, b"OptionalLong.empty"]


def test_a_batch_of_a_magic_to_come_ends_no_run_of_messages(tmp_path: Path) -> None:
    parts = (message(record(b"a"), magic=0), batch([record(b"v")], magic=96))
    log = write_segment(tmp_path, 0, *parts, message(record(b"b"), magic=0, offset=2))
    assert payloads(printed(log)) == [b"a", b"v", b"b"]
