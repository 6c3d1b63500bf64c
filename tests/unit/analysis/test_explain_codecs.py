"""What another codec would make of a topic: the estimate, its error, and the truth."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import kseg
from kseg import explain
from kseg.analysis.explain import values
from kseg.constants import Compression
from kseg.format.convert import Converter, Target
from kseg.log.segment.reader import Segment
from tests.builders import messages, record, write_segment

#: Many more where the whole tests run.
SAMPLES = 200 if os.environ.get("KSEG_WHOLE") else 5
_rng = np.random.default_rng(9)
_WORDS = b'{"id": 17, "state": "paid", "city": "Berlin"} ' * 40

Values = Callable[[int], bytes]
#: The values of records, by the number of their batch.
CORPORA: dict[str, Values] = {
    "text": lambda at: _WORDS[at % 40 : at % 40 + 900],
    "random": lambda at: _rng.bytes(900),
    "mixed": lambda at: _WORDS[:450] + _rng.bytes(450),
    "text, then random": lambda at: _rng.bytes(900) if at > 150 else _WORDS[:900],
    "drifting": lambda at: _rng.bytes(3 * at) + _WORDS[: 900 - 3 * at],
    "by turns": lambda at: _rng.bytes(900) if at % 7 == 0 else _WORDS[:900],
    "sizes differ": lambda at: _WORDS[: 100 + at * at % 1_700],
    "bursts": lambda at: _rng.bytes(900) if at // 20 % 5 == 0 else _WORDS[:900],
}


def write_log(directory: Path, value: Values) -> int:
    """300 batches in three segments; returns their bytes."""
    size = 0
    for segment in range(3):
        parts = [
            kseg.encode_batch({"value": [value(at)] * 3}, base_offset=3 * at).data
            for at in range(100 * segment, 100 * segment + 100)
        ]
        size += write_segment(directory, 300 * segment, *parts).stat().st_size
    return size


def converted(directory: Path, codec: Compression, level: int | None = None) -> int:
    """The bytes of all batches after conversion."""
    size, converter = 0, Converter(Target(2, codec, level, recoded_bytes_max=1_048_588))
    for path in directory.glob("*.log"):
        with Segment.open(path) as segment:
            for tile in segment.walk():
                size += sum(map(len, converter.convert(tile.data, tile.table, tile.base)))
    return size


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_truth_lies_within_the_error(
    tmp_path: Path, corpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "RUNS", 24)
    log = tmp_path / "t-0"
    size = write_log(log, CORPORA[corpus])
    truth = converted(log, Compression.ZSTD)
    choices = values.choices_of({"compression.type": "zstd"})
    inside = 0
    for seed in range(SAMPLES):
        (one,) = values.estimate("t", [log], choices, seed=seed, sample_bytes=size // 6)
        assert one.bytes == size
        assert 0 < one.sampled_bytes < size // 2
        inside += abs(one.new_bytes - truth) <= one.error_bytes
    assert inside >= SAMPLES * 0.95 - 1


def test_a_small_topic_is_measured_whole(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    write_log(log, CORPORA["by turns"])
    words = {"compression.type": "zstd,gzip,none", "compression.zstd.level": "9"}
    found = explain(tmp_path, what_if=words, threads=2).codecs
    assert [(one.topic, one.compression, one.level) for one in found] == [
        ("t", "zstd", 9),
        ("t", "gzip", None),
        ("t", "none", None),
    ]
    assert [one.error_bytes for one in found] == [0, 0, 0]
    assert found[0].new_bytes == converted(log, Compression.ZSTD, 9)
    assert found[1].new_bytes == converted(log, Compression.GZIP)
    assert found[2].new_bytes == found[2].bytes == found[2].sampled_bytes


def test_topics_have_settings_of_their_own(tmp_path: Path) -> None:
    for name in ("a-0", "b-0", "__consumer_offsets-3"):
        write_segment(tmp_path / name, 0, kseg.encode_batch({"value": [b"v" * 999]}).data)
    own = {"a": {"compression.type": "lz4"}}
    found = explain(tmp_path, what_if={"compression.type": "zstd"}, topic_what_if=own)
    assert [(one.topic, one.compression) for one in found.codecs] == [("a", "lz4"), ("b", "zstd")]
    assert found.what_if is None
    both = explain(tmp_path, what_if={"compression.type": "zstd", "retention.ms": "1"})
    assert both.what_if is not None
    assert both.what_if.settings == ("retention.ms=1",)


def test_old_messages_and_damage_are_taken_as_they_are(tmp_path: Path) -> None:
    old = messages([record(b"v" * 999, offset=0)], magic=1)
    damaged = bytearray(kseg.encode_batch({"value": [b"v" * 999]}, base_offset=1).data)
    damaged[57:61] = b"\xff" * 4
    size = write_segment(tmp_path / "t-0", 0, old, damaged).stat().st_size
    (one,) = explain(tmp_path, what_if={"compression.type": "zstd"}).codecs
    assert (one.bytes, one.new_bytes) == (size, size)


def test_wrong_words_are_refused(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0)
    for words, reason in (
        ({"compression.type": "brotli"}, "brotli"),
        ({"compression.zstd.level": "1"}, "name the codec too"),
        ({"compression.type": "zstd", "compression.zstd.level": "99"}, "99"),
        ({"compression.type": "zstd", "compression.zstd.level": "x"}, "x"),
    ):
        with pytest.raises(ValueError, match=reason):
            explain(tmp_path, what_if=words)
    (empty,) = explain(tmp_path, what_if={"compression.type": "zstd"}).codecs
    assert (empty.bytes, empty.new_bytes, empty.error_bytes) == (0, 0, 0)
