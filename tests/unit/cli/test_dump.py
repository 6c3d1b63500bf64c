"""`kseg dump`: what is there, in file order; findings on standard error; ranges, keys, tails."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.cli import dump
from tests.builders import (
    COMMIT,
    GZIP,
    ZSTD,
    batch,
    control_batch,
    messages,
    record,
    wrapper,
)
from tests.builders import write_segment as segment
from tests.inner_faults import ERAS, wrong_inner_message
from tests.unit.cli.conftest import Kseg, Ran


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("rows", ["--records", "--batches"])
def test_a_wrong_checksum_inside_a_sound_wrapper_is_found(
    kseg: Kseg, tmp_path: Path, era: str, rows: str
) -> None:
    ran = kseg("dump", rows, "--format", "jsonl", wrong_inner_message(tmp_path, era))
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    assert "a message inside does not match its checksum" in ran.err
    if rows == "--records" and era != "Kafka 0.7":  # that format's offsets lie in no message
        assert [(row["offset"], row["valid"]) for row in ran.rows] == [
            (0, True),
            (1, False),
            (2, True),
        ]


# Standard input.


def test_a_stream_longer_than_its_window_is_read_whole(kseg: Kseg) -> None:
    many = [batch([record(b"x" * 100_000)], base_offset=n) for n in range(30)]
    many.insert(7, batch([record(b"y" * 3_000_000)], base_offset=7))
    ran = kseg("dump", "--batches", "--format", "jsonl", "-", stdin=b"".join(many))
    assert (ran.code, ran.err) == (0, "")
    assert len(ran.rows) == 31
    starts = [sum(map(len, many[:n])) for n in range(31)]
    assert [row["position"] for row in ran.rows] == starts


@pytest.mark.parametrize(
    ("tail", "code"), [(bytes(3_000_000), 0), (bytes(3_000_000) + b"x", 1), (b"torn", 1)]
)
def test_the_end_of_a_stream_is_judged_when_it_has_come(kseg: Kseg, tail: bytes, code: int) -> None:
    ran = kseg("dump", "--format", "jsonl", "-", stdin=batch([record(b"a")]) + tail)
    assert (ran.code, len(ran.rows)) == (code, 1)
    assert ran.err.count("\n") == 1


# The files beside the logs.


DEEP = ("--kafka", "--deep-iteration", "--print-data-log")


FORMS = {
    "text": (),
    "text of batches": ("--batches",),
    "lines of JSON": ("--format", "jsonl"),
    "lines of JSON, a key": ("--format", "jsonl", "--key", "k1"),
    "lines of JSON, a range": ("--format", "jsonl", "--offset", "5..40"),
    "the first rows": ("--format", "jsonl", "--limit", "7"),
    "the last rows": ("--format", "jsonl", "--last", "7"),
    "csv": ("--format", "csv", "--bytes", "utf8"),
    "read, not mapped": ("--mapping", "never"),
    "kafka": ("--kafka",),
    "kafka, deep": DEEP,
    "kafka 0.11": (*DEEP, "--kafka-version", "0.11"),
}


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Partitions of several eras and segments, sound and damaged, cut into many pieces."""
    monkeypatch.setattr(dump, "PIECE_BYTES", 200)
    data = tmp_path / "data"
    batches = [
        batch(
            [record(b"\xff%d" % n, key=b"k%d" % (n % 3), headers=[(b"h", b"x")])] * 3,
            base_offset=3 * n,
            codec=ZSTD if n % 2 else 0,
        )
        for n in range(12)
    ]
    batches[4] = batches[4][:-1] + b"?"
    segment(data / "a-0", 0, *batches, control_batch(COMMIT, base_offset=36, producer_id=7))
    segment(data / "a-0", 40, batch([record(b"y")], base_offset=42), b"\0" * 90)
    entries = [record(b"m%d" % n, timestamp=n) for n in range(9)]
    segment(data / "b-0", 0, messages(entries, magic=1))
    wrapped = wrapper(entries, magic=1, codec=GZIP, base_offset=3)
    segment(data / "c-0", 0, wrapped, b"tail")
    return data


@pytest.mark.parametrize("form", FORMS)
def test_output_and_findings_are_the_same_for_every_number_of_jobs(
    kseg: Kseg, logs: Path, form: str
) -> None:
    files = sorted(map(str, logs.glob("*/*"))) if "--kafka" in FORMS[form] else [str(logs)]
    ran: list[Ran] = [kseg("dump", *FORMS[form], "--jobs", n, *files) for n in (1, 2, 3, 8)]
    assert ran[0].out
    assert ran == ran[:1] * 4


@pytest.mark.parametrize("words", [("--format", "jsonl"), DEEP])
def test_jobs_go_on_over_files_in_order_until_one_cannot_be_opened(
    kseg: Kseg, logs: Path, words: tuple[str, ...]
) -> None:
    files = [*sorted(logs.glob("b-0/*")), logs / "gone-0" / "00000000000000000000.log"]
    ran = [kseg("dump", *words, "--jobs", n, *files) for n in (1, 4)]
    assert ran[0].code == 3
    assert ran == ran[:1] * 2
