"""Rows that are not records: one for each record batch, or one for each log file.

Both come from headers alone, so nothing is inflated or decoded. A batch whose checksum is wrong is
a row like others, with `crcOk` false; where the bytes are no batch, the log has a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kseg import Segment
from kseg.analysis.summary import Summary
from kseg.constants import codec_label
from kseg.errors import KsegError
from kseg.spark.damage import Damage, check_size, fault, named, passing_over
from kseg.spark.options import SourceOptions
from kseg.spark.plan import Split
from kseg.spark.remote import place
from kseg.spark.rows import RowBuilder, labelled, of_split
from kseg.spark.schema import Projection

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.header import BatchTable

    OnError = Callable[[KsegError], None]


def batch_rows(
    task: tuple[Split, ...], projection: Projection, options: SourceOptions, damages: list[Damage]
) -> Iterator[pa.RecordBatch]:
    """A row for each batch that can hold a record of the wanted range.

    Raises:
        KsegError: the log has a fault, and `onCorrupt` is `fail`.
        OSError: a segment is gone, or cannot be read.
    """
    builder = RowBuilder(projection, _BATCH_BUILDERS)
    for split in task:
        for table in _tables(split, options, passing_over(options, split, damages)):
            yield builder.build(_within(table, split), split)


def segment_rows(
    task: tuple[Split, ...], projection: Projection, options: SourceOptions, damages: list[Damage]
) -> Iterator[pa.RecordBatch]:
    """A row for each log file, summed up over all its batches.

    Raises:
        KsegError: the log has a fault, and `onCorrupt` is `fail`.
        OSError: a segment is gone, or cannot be read.
    """
    builder = RowBuilder(projection, _SEGMENT_BUILDERS)
    for split in task:
        summary, last = Summary(), None
        for last in _tables(split, options, passing_over(options, split, damages)):
            summary.feed(last)
        row = {
            **summary.document(),
            "base_offset": split.base_offset,
            "bytes": split.size,
            "first_offset": summary.first_offset,
            "last_offset": summary.last_offset,
            "end_position": 0 if last is None else last.end_position,
            "stop": "END" if last is None else last.stop.name,
        }
        yield builder.build([row], split)


def _tables(split: Split, options: SourceOptions, on_error: OnError | None) -> Iterator[BatchTable]:
    """The headers of the batches that start within a split."""
    try:
        with Segment.open(place(split.path), size=split.size, is_last=split.is_last) as segment:
            check_size(segment, split, on_error)
            where: dict[str, Any] = {
                "start": split.start_position,
                "limit": split.end_position,
                "on_unreadable": on_error,
            }
            if options.verify_crc and options.mode == "batches":
                walk = segment.walk(on_bad_crc="note", **where)
                tables: Iterator[BatchTable] = (tile.table for tile in walk)
            else:
                tables = segment.headers(**where)
            for table in tables:
                yield table
            found = segment.stop_fault(table)
            if found is not None:
                fault(found, on_error)
    except KsegError as error:
        raise named(error, split.path) from None


def _within(table: BatchTable, split: Split) -> BatchTable:
    """Those that can hold a record within the bounds, told by their headers."""
    keep = np.ones(len(table), np.bool_)
    if split.start_offset is not None:
        keep &= table.last_offset >= split.start_offset
    if split.end_offset is not None:
        keep &= table.base_offset < split.end_offset
    if split.start_timestamp is not None:
        keep &= table.max_timestamp >= split.start_timestamp
    kept = table if keep.all() else table.take(keep)
    return kept if split.aborted is None else split.aborted.drop(kept)


_Builder = Callable[[Any, Split, pa.DataType], pa.Array]


_Mask = Callable[["BatchTable"], "npt.NDArray[np.bool_]"]


def _column(name: str, untold: _Mask | None = None) -> _Builder:
    """A column of the table, widened to Spark's type; null where `untold` says so."""

    def build(table: BatchTable, _split: Split, kind: pa.DataType) -> pa.Array:
        values = getattr(table, name).astype(kind.to_pandas_dtype(), copy=False)
        return pa.array(values, kind, mask=None if untold is None else untold(table))

    return build


def _codec(table: BatchTable, _split: Split, kind: pa.DataType) -> pa.Array:
    labels = {int(code): codec_label(int(code)) for code in np.unique(table.codec)}
    return labelled(table.codec, labels, kind)


def _value(name: str) -> _Builder:
    def build(rows: list[dict[str, Any]], _split: Split, kind: pa.DataType) -> pa.Array:
        return pa.array([row[name] for row in rows], kind)

    return build


def _only_records_tell(table: BatchTable) -> npt.NDArray[np.bool_]:
    """Of a compressed message of magic 0 or 1, the header tells neither first offset nor count."""
    untold: npt.NDArray[np.bool_] = (table.magic < 2) & (table.codec != 0)
    return untold


def _none_in(name: str) -> _Mask:
    def mask(table: BatchTable) -> npt.NDArray[np.bool_]:
        none: npt.NDArray[np.bool_] = getattr(table, name) == -1
        return none

    return mask


_PLACE: Final[dict[str, _Builder]] = {
    name: of_split(name) for name in ("topic", "partition", "path")
}
_BATCH_BUILDERS: Final[dict[str, _Builder]] = {
    **_PLACE,
    "position": _column("position"),
    "size": _column("size"),
    "baseOffset": _column("base_offset", _only_records_tell),
    "lastOffset": _column("last_offset"),
    "count": _column("record_count", _only_records_tell),
    "baseSequence": _column("base_sequence"),
    "lastSequence": _column("last_sequence"),
    "producerId": _column("producer_id"),
    "producerEpoch": _column("producer_epoch"),
    "leaderEpoch": _column("leader_epoch"),
    "transactional": _column("is_transactional"),
    "control": _column("is_control"),
    "deleteHorizonMs": _column("delete_horizon_ms", _none_in("delete_horizon_ms")),
    "baseTimestamp": _column("base_timestamp"),
    "maxTimestamp": _column("max_timestamp"),
    "timestampType": _column("timestamp_type"),
    "magic": _column("magic"),
    "codec": _codec,
    "crc": _column("crc"),
    "crcOk": _column("crc_ok", _none_in("crc_ok")),
}
_SEGMENT_BUILDERS: Final[dict[str, _Builder]] = {
    **_PLACE,
    "baseOffset": _value("base_offset"),
    "bytes": _value("bytes"),
    "batches": _value("batches"),
    "records": _value("records"),
    "firstOffset": _value("first_offset"),
    "lastOffset": _value("last_offset"),
    "minTimestamp": _value("min_timestamp"),
    "maxTimestamp": _value("max_timestamp"),
    "codecs": _value("codecs"),
    "magics": _value("magics"),
    "endPosition": _value("end_position"),
    "stop": _value("stop"),
}
