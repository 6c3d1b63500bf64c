"""The options of `dump --kafka`: what goes together, exit codes, files and directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import batch, record, write_segment
from tests.unit.cli.conftest import Kseg

LOG = "00000000000000000000.log"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--deep-iteration",), "--deep-iteration needs --kafka"),
        (("--kafka", "--limit", "3"), "--limit cannot be used with --kafka"),
        (("--kafka", "--format", "jsonl"), "--format cannot be used with --kafka"),
        (("--kafka", "--value-decoder-class", "Avro"), "No decoder 'Avro'"),
        (("--kafka", "--kafka-version", "0.10"), "lines for --deep-iteration"),
        (("--kafka", "--kafka-version", "2.8", "--offsets-decoder"), "the lines of 4.2 only"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    kseg: Kseg, orders: Path, words: tuple[str, ...], complaint: str
) -> None:
    ran = kseg("dump", *words, orders / LOG)
    assert (ran.code, ran.out) == (2, b"")
    assert complaint in ran.err


def test_no_path_is_refused_with_and_without_kafka(kseg: Kseg) -> None:
    assert 'Missing required argument "[files]"' in kseg("dump", "--kafka").err
    assert kseg("dump").code == 2


def test_files_are_paths_too_and_a_directory_is_its_files(kseg: Kseg, orders: Path) -> None:
    files = sorted(orders.glob("*.log"))
    given = kseg("dump", "--kafka", "--files", ",".join(map(str, files)))
    assert given.code == 0
    assert given.out == kseg("dump", "--kafka", *files).out
    whole = kseg("dump", "--kafka", orders).text
    assert all(f"Dumping {path}\n" in whole for path in files)


def test_an_unknown_file_is_passed_over(kseg: Kseg, tmp_path: Path) -> None:
    other = tmp_path / "00000000000000000000.log.deleted"
    other.write_bytes(b"")
    ran = kseg("dump", "--kafka", other)
    assert (ran.code, ran.text) == (0, f"Dumping {other}\n")
    assert ran.err == f"Ignoring unknown file {other}\n"


def test_a_wrong_checksum_is_shown_and_found(kseg: Kseg, tmp_path: Path) -> None:
    data = bytearray(batch([record(b"v")]))
    data[-1] ^= 1
    ran = kseg("dump", "--kafka", write_segment(tmp_path, 0, bytes(data)))
    assert ran.code == 1
    assert ran.text.rstrip().endswith("isvalid: false")


def test_offsets_that_do_not_follow_are_printed_behind_all_lines(
    kseg: Kseg, tmp_path: Path
) -> None:
    parts = (batch([record(b"v")], base_offset=at) for at in (0, 5, 6, 9))
    log = write_segment(tmp_path, 0, *parts)
    ran = kseg("dump", "--kafka", "--deep-iteration", log)
    wanted = [
        "Non-consecutive offsets in " + str(log),
        "  6 is followed by 9",
        "  0 is followed by 5",
    ]
    assert (ran.code, ran.err.splitlines()) == (0, wanted)


def test_numbers_are_decoded_by_their_class(kseg: Kseg, tmp_path: Path) -> None:
    key, value = (7).to_bytes(8, "big"), (-1).to_bytes(4, "big", signed=True)
    log = write_segment(tmp_path, 0, batch([record(value, key=key), record(b"\0")]))
    decoders = ("--key-decoder-class", "org.apache.kafka.tools.api.LongDecoder")
    ran = kseg("dump", "--kafka", *decoders, "--value-decoder-class", "integer", log)
    lines = ran.text.splitlines()
    assert lines[3].endswith(" key: 7 payload: -1")
    assert lines[4].endswith(" headerKeys: []")
    assert ran.code == 1
    assert "1 bytes are no number of 4 bytes" in ran.err


def test_skipped_metadata_leaves_contents_alone(kseg: Kseg, tmp_path: Path) -> None:
    records = [record(b"v", key=b"k"), record(b"w"), record(None)]
    log = write_segment(tmp_path, 0, batch(records))
    ran = kseg("dump", "--kafka", "--print-data-log", "--skip-record-metadata", log)
    assert ran.text.split("\n")[3:] == ["| key: k payload: v", " payload: w", "", ""]


def test_an_older_release_refuses_the_format_that_it_did_not_know(kseg: Kseg, orders: Path) -> None:
    ran = kseg("dump", "--kafka", "--kafka-version", "0.10", "--deep-iteration", orders / LOG)
    assert (ran.code, ran.text) == (1, f"Dumping {orders / LOG}\nStarting offset: 0\n")
    assert "did not know magic 2" in ran.err
