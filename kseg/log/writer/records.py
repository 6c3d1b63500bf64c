"""What a caller appends: batches as they are, or records, of which batches are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from kseg.format.encode import encode_batches
from kseg.format.encoded import EncodedBatch
from kseg.format.options import BatchOptions
from kseg.format.source import SOURCE_FIELDS, columns_of, rows_of
from kseg.format.values import RecordColumns

if TYPE_CHECKING:
    from kseg.format.source import RecordSource

    Batch = bytes | bytearray | memoryview | EncodedBatch

_WANTED = 'append takes batches, or records such as {"value": ["text"]} or [(key, value)]'


def batches_of(
    given: Batch | Iterable[Batch] | RecordSource,
    options: BatchOptions | None,
    clock: Callable[[], int],
) -> Iterable[Batch]:
    """The batches themselves, or those of records: without their offsets, and with times.

    Args:
        given: what `Log.append` was given.
        options: of the batches that are made; `BatchOptions()` if None.
        clock: the time of records that bring none.

    Raises:
        TypeError: it is neither; or options for batches, which have theirs.
        ValueError, InvalidRecordError: as `encode_batches`, which tells some when its batch is due.
    """
    if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
        columns_of(given)  # type: ignore[arg-type]  # it raises, and says how they are taken
    if isinstance(given, (str, bytes, bytearray, memoryview, EncodedBatch)) or not isinstance(
        given, (Iterable, RecordColumns)
    ):
        raise TypeError(f"{_WANTED}{_but_not(given)}")
    if isinstance(given, RecordColumns):
        read = {name: given.arrays[name] for name in SOURCE_FIELDS if name in given.arrays}
        return _encoded(read, options, clock)
    if isinstance(given, Mapping):
        return _encoded(given, options, clock)
    each: Iterator[Any] = iter(given)
    first = next(each, None)
    if isinstance(first, (tuple, list)):
        return _encoded(columns_of(chain((first,), each)), options, clock)
    if first is None:
        return ()
    if isinstance(first, str):
        raise TypeError(f"{_WANTED}, not a list of texts")
    if options is not None:
        raise TypeError("options are for records; batches are what they are")
    return chain((first,), each)


def _but_not(given: object) -> str:
    if isinstance(given, (bytes, bytearray, memoryview, EncodedBatch)):
        return "; options are for records"
    return f", not {type(given).__name__}"


def _encoded(
    columns: Mapping[str, Any], options: BatchOptions | None, clock: Callable[[], int]
) -> Iterator[EncodedBatch]:
    """Batches of columns; of those that were read, only what a record is made of."""
    kept = {name: column for name, column in columns.items() if name != "offset"}
    rows = rows_of(kept, timestamp_ms=clock())
    return encode_batches(rows, options or BatchOptions())


__all__ = ["batches_of"]
