"""Compress what a batch or a wrapper message holds, in the framings that Kafka writes."""

from __future__ import annotations

from kseg.constants import Compression

#: The least and the greatest level of each codec that has levels.
LEVELS = {
    Compression.GZIP: (1, 9),
    Compression.LZ4: (1, 17),
    Compression.ZSTD: (-131072, 22),
}


def check_level(kind: int, level: int) -> None:
    """Refuse a level that the codec does not have.

    Raises:
        ValueError: the codec has no levels, or the level is out of its range.
    """
    name = Compression(kind).label
    if kind not in LEVELS:
        raise ValueError(f"{name} has no levels")
    least, greatest = LEVELS[Compression(kind)]
    if not least <= level <= greatest and not (kind == Compression.GZIP and level == -1):
        raise ValueError(f"{name} has levels {least} to {greatest}, not {level}")
