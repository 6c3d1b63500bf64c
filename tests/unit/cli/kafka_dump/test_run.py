"""The lines of Kafka's dump tool for logs: hostile bytes, terminals, large rows, several pieces."""

from __future__ import annotations

import io
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.failures import Exit
from kseg.cli.kafka_dump.decoders import internal_contents
from kseg.cli.kafka_dump.lines import DumpOptions, number_decoder, stored_contents, style_of
from kseg.cli.kafka_dump.run import KafkaDump
from kseg.internal import InternalTopic
from tests.builders import (
    batch,
    record,
    write_segment,
)

PLAIN = style_of(terminal=False)
ESCAPED = style_of(terminal=True)


def printed(path: Path, style: int = PLAIN, **options: Any) -> bytes:
    """The lines behind the first."""
    out = io.BytesIO()
    given = DumpOptions(style, deep=True, **{"parser": stored_contents, **options})
    KafkaDump(given, out).run([str(path)])
    return out.getvalue().partition(b"\n")[2]


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


def test_a_record_larger_than_the_buffer_prints_whole(tmp_path: Path) -> None:
    headers = tuple((b"n%06d" % number, b"") for number in range(60_000))
    value = b"v" * 3_000_000
    log = write_segment(tmp_path, 0, batch([record(value, key=b"k", headers=headers)]))
    line = printed(log).splitlines()[2]
    assert b" headerKeys: [" + b",".join(name for name, _ in headers) + b"] key: k" in line
    assert line.endswith(b" payload: " + value)


WHOLE = batch([record(b"v", key=b"k")])
BROKEN = batch([record(b"", key=b"\0\0\0\1")], transactional=True, control=True)
CUT = batch([record(b"v")], count=2)
FLIPPED = WHOLE[:-2] + b"w" + WHOLE[-1:]
DAMAGE = {
    "a torn end": ((WHOLE, WHOLE[:30]), {}, [b"v"], "the last batch is incomplete"),
    "zeros": ((WHOLE, bytes(30)), {}, [b"v"], "only zero bytes follow"),
    "a wrong checksum": ((FLIPPED, WHOLE), {}, [b"w", b"v"], "does not match its checksum"),
    "fewer records": ((CUT, WHOLE), {}, [b"v", b"v"], "fewer records than the header"),
    "a control record": ((BROKEN, WHOLE), {}, [b"v"], "the value of a marker"),
    "a short number": (
        (WHOLE, batch([record(b"\0\0\0\1")], base_offset=1)),
        {"parser": partial(stored_contents, value=number_decoder(4))},
        [b"1"],
        "1 bytes are no number of 4 bytes",
    ),
    "a record without a key": (
        (batch([record(b"")]),),
        {"parser": partial(internal_contents, InternalTopic.OFFSETS)},
        [],
        "the key: there is none",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_an_error_of_its_own_and_the_lines_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    parts, options, shown, words = DAMAGE[name]
    log = write_segment(tmp_path, 0, *parts)
    assert payloads(printed(log, **options)) == shown
    told = capsys.readouterr().err
    assert words in told
    assert str(log) in told
    given = DumpOptions(PLAIN, deep=True, **{"parser": stored_contents, **options})
    found = Exit.OK if name == "zeros" else Exit.FOUND
    assert KafkaDump(given, io.BytesIO()).run([str(log)]) is found


def test_a_type_that_is_not_known_is_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_segment(tmp_path, 0, batch([record(b"", key=b"\x7f\0")]))
    shown = printed(log, parser=partial(internal_contents, InternalTopic.OFFSETS))
    assert payloads(shown) == [b"type 32512 is not known"]
    assert capsys.readouterr().err == ""


def test_a_tear_that_max_bytes_makes_is_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_segment(tmp_path, 0, WHOLE, WHOLE)
    assert payloads(printed(log, max_bytes=len(WHOLE) + 30)) == [b"v"]
    assert capsys.readouterr().err == ""
