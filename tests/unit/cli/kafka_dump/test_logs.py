"""The lines of Kafka's dump tool for logs: hostile bytes, terminals, large rows, several pieces."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.kafka_dump.lines import Look, look_of
from kseg.cli.kafka_dump.logs import LogDump, LogOptions
from kseg.cli.kafka_dump.parsers import DecoderParser
from kseg.errors import CorruptRecordError, InvalidRecordError, KsegError
from tests.builders import (
    COMMIT,
    GZIP,
    batch,
    control_batch,
    message,
    record,
    wrapper,
    write_segment,
)

PLAIN = look_of(terminal=False)
ESCAPED = look_of(terminal=True)


def printed(path: Path, look: Look = PLAIN, **options: Any) -> bytes:
    out = io.BytesIO()
    LogDump(LogOptions(look, deep=True, parser=DecoderParser(), **options), out.write).print(path)
    return out.getvalue()


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


def test_batch_lines_stand_in_front_of_their_records(tmp_path: Path) -> None:
    parts = [batch([record(b"v"), record(b"w")], base_offset=2 * at) for at in range(3)]
    lines = printed(write_segment(tmp_path, 0, *parts)).splitlines()[1:]
    assert [re.match(rb"baseOffset|\| offset: \d", line)[0] for line in lines] == [
        b"baseOffset",
        b"| offset: 0",
        b"| offset: 1",
        b"baseOffset",
        b"| offset: 2",
        b"| offset: 3",
        b"baseOffset",
        b"| offset: 4",
        b"| offset: 5",
    ]


def test_messages_of_old_formats_have_their_own_checksums_inside_a_compressed_one(
    tmp_path: Path,
) -> None:
    inner = [record(b"a"), record(b"b")]
    parts = (message(record(b"x"), magic=1), wrapper(inner, magic=1, codec=GZIP, base_offset=1))
    lines = printed(write_segment(tmp_path, 0, *parts)).splitlines()
    checks = [line for line in lines if line.startswith(b"|")]
    assert len(checks) == 3
    assert all(re.search(rb" isValid: true crc: \d+} payload: [xab]$", line) for line in checks)
    assert len({re.search(rb"crc: (\d+)", line)[1] for line in checks}) == 3


def test_a_control_record_shows_its_marker_and_no_contents(tmp_path: Path) -> None:
    log = write_segment(tmp_path, 0, control_batch(COMMIT), batch([record(b"v")], base_offset=1))
    lines = printed(log).splitlines()
    assert re.search(rb" headerKeys: \[\] endTxnMarker: COMMIT coordinatorEpoch: 0$", lines[2])
    assert lines[-1].endswith(b" payload: v")


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
    dump = LogDump(LogOptions(PLAIN, deep=True, parser=DecoderParser()), out.write)
    try:
        dump.print(log)
    except KsegError:
        pass
    else:
        assert dump.found
    assert out.getvalue().startswith(b"Log starting offset: 0\n")


def test_lines_end_in_the_middle_of_a_control_record_that_cannot_be_read(tmp_path: Path) -> None:
    broken = batch([record(b"", key=b"\0\0\0\1")], transactional=True, control=True)
    log = write_segment(tmp_path, 0, broken, batch([record(b"v")], base_offset=1))
    out = io.BytesIO()
    with pytest.raises(InvalidRecordError, match="6 bytes") as raised:
        LogDump(LogOptions(PLAIN, deep=True), out.write).print(log)
    assert (raised.value.position, raised.value.offset) == (0, 0)
    assert out.getvalue().endswith(b" headerKeys: []")


def test_lines_end_in_front_of_a_header_that_ends_behind_the_file(tmp_path: Path) -> None:
    short = bytes(8) + (20).to_bytes(4, "big") + bytes(4) + b"\x02" + bytes(15)
    log = write_segment(tmp_path, 0, batch([record(b"v")]), short)
    out = io.BytesIO()
    with pytest.raises(CorruptRecordError, match="the header ends behind the file"):
        LogDump(LogOptions(PLAIN, deep=True), out.write).print(log)
    assert out.getvalue().count(b"\n") == 3
