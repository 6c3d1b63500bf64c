"""Where a stream stands: an offset for each partition, as Spark keeps it between runs.

    {"v": 1, "topics": {"orders-0": {"offset": 1200, "segment": 1000, "pos": 81920}}}

`offset` is the next record's and alone decides what is read. `segment` and `pos` say where the last
look found the beginning of its batch, or the log's end. They save a walk if that is still so.
Nothing here imports pyspark or touches a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_VERSION: Final = 1
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """How far one partition was read.

    Attributes:
        offset: of the next record.
        segment: base offset of the segment that `position` lies in; -1 where none is known.
        position: where the next batch begins, in bytes.
    """

    offset: int
    segment: int = -1
    position: int = 0


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The place in each partition, by the name of its directory."""

    places: Mapping[str, Place]

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it: a dict of numbers, strings and dicts, in the order of names."""
        return {
            "v": _VERSION,
            "topics": {
                name: {"offset": place.offset, "segment": place.segment, "pos": place.position}
                for name, place in sorted(self.places.items())
            },
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StreamOffsets:
        """What a checkpoint says.

        Raises:
            ValueError: another version wrote it, or something else did.
        """
        version = document.get("v")
        if version != _VERSION:
            raise ValueError(f"kseg: the checkpoint's offsets have version {version!r}, not 1")
        topics = document.get("topics")
        if not isinstance(topics, Mapping):
            raise ValueError("kseg: the checkpoint's offsets name no topics")
        return cls({str(name): _place(name, given) for name, given in topics.items()})


def _place(name: object, given: Any) -> Place:
    try:
        numbers = [given[key] for key in ("offset", "segment", "pos")]
    except (KeyError, TypeError):
        numbers = []
    # The offset behind the last one of all has more than 64 bits.
    if not numbers or not all(
        type(number) is int and -1 <= number <= _INT64_MAX + (not place)
        for place, number in enumerate(numbers)
    ):
        raise ValueError(f"kseg: the checkpoint's offset of {name!r} is {given!r}")
    return Place(*numbers)
