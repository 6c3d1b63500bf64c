"""Where one batch ends and the next begins when plain messages are gathered into batches.

What a conversion drops, counted by kind.

Convert any magic and any codec to any other; refuse what is lost, or count it.

Batches that need no change are copied byte for byte. Where magic 2 stays, only the compressed bytes
and the fields that depend on them are replaced, so the rest survives: offsets, times, producers,
flags, epochs, horizons, unused attributes of records. Where the magic changes, records are decoded
and rewritten at their offsets; plain messages of old formats are gathered into batches. Kafka 0.7
has no offsets to keep, so its messages are numbered.

`kseg.legacy.down_convert` does what brokers do for old consumers: it does not report losses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, field, fields, replace
from itertools import pairwise

import numpy as np

from kseg import _core
from kseg._kernels.encode import Rows
from kseg.constants import (
    BATCH_BYTES,
    BATCH_HEADER_BYTES,
    INT32_MAX,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Array,
    Buffer,
    Codec,
    Compression,
    TimestampType,
    codec_of,
)
from kseg.documents import frozen_dataclass
from kseg.errors import (
    FormatError,
    InvalidRecordError,
    KsegError,
    LimitExceededError,
    OnError,
    UnsupportedFormatError,
)
from kseg.format import codec
from kseg.format.bodies import at_batch, record_error
from kseg.format.columns import WholeBatches, check_walk, decode_whole
from kseg.format.compress import compress
from kseg.format.encode import encode_batch, rows_of
from kseg.format.header import CODEC_MASK, LOG_APPEND, BatchHeader, BatchTable, crc_error, scan_all
from kseg.format.options import BatchOptions, no_append_time, options_for
from kseg.format.reader import Workspace
from kseg.format.request import FIELDS_DEFAULT, INFLATED_BYTES_MAX
from kseg.format.take import runs
from kseg.format.values import RecordColumns

#: The approximate size of a record without its key and value.
_RECORD_BYTES = 20
#: The kernels' number of the fault that a header counts fewer than 0 records.
_NEGATIVE_COUNT = 1


def batch_cuts(
    columns: RecordColumns,
    kinds: Array,
    codecs: Array,
    *,
    magic: int,
    bounded: bool,
    batch_bytes: int,
    kafka07: bool,
) -> list[int]:
    """Rows where a new batch begins, since records cannot share one or it is full; and the end.

    Args:
        columns: the records: `offset timestamp key value position`.
        kinds: int[n], type of each record's timestamp; all that share a batch have one.
        codecs: int[n], of the message each record comes from; compressed only in Kafka 0.7.
        magic: the version of the new batches.
        bounded: whether batches are wrapped at all; plain messages need no bounds.
        batch_bytes: about how large a batch may become.
        kafka07: offsets are positions, which are not kept.
    """
    times, offsets = columns["timestamp_ms"], columns["offset"]
    apart = (np.diff(kinds) != 0) | (np.diff(codecs) != 0)
    if magic:
        # Under log append time a batch has only one time.
        apart |= (kinds[1:] == TimestampType.LOG_APPEND_TIME) & (np.diff(times) != 0)
    if kafka07:
        # A compressed set stays one set.
        apart |= (codecs[1:] != 0) & (np.diff(columns["position"]) != 0)
    else:
        apart |= offsets[1:] <= offsets[:-1]
    forced = [0, *(np.flatnonzero(apart) + 1).tolist(), len(columns)]
    if not bounded and not codecs.any():
        return forced
    sizes = columns["value"].sizes() + columns["key"].sizes() + np.int64(_RECORD_BYTES)
    return _with_full_batches(forced, np.cumsum(sizes), offsets, codecs, batch_bytes)


def _with_full_batches(
    forced: list[int], sizes: Array, offsets: Array, codecs: Array, batch_bytes: int
) -> list[int]:
    """Further cuts, where a batch of plain messages is full, or its offsets are too far apart."""
    cuts = []
    for first, end in pairwise(forced):
        while first < end:
            cuts.append(first)
            before = int(sizes[first - 1]) if first else 0
            room = int(np.searchsorted(sizes[first:end], before + batch_bytes, "right"))
            if codecs[first]:
                room = end - first
            far = int(offsets[first]) + INT32_MAX
            near = int(np.searchsorted(offsets[first:end], far, "right"))
            first += max(1, min(room, near))
    return [*cuts, forced[-1]]


@dataclass(slots=True)
class Losses:
    """How many batches or records lost something that their new format has no room for.

    Attributes:
        control_batches: transaction markers and other control batches, left out.
        empty_batches: batches that compaction left without records, left out.
        producer_batches: batches whose producer id, epoch and sequences are gone.
        transactional_batches: batches that no longer say they belong to a transaction; consumers
            then see aborted records too.
        leader_epochs: batches whose leader epoch is gone.
        delete_horizons: batches whose delete horizon is gone.
        offset_ranges: batches that covered more offsets than their records have; a gap is left at
            their end.
        header_records: records whose headers are gone.
        timestamps: records whose timestamp is gone.
        append_times: messages of magic 0, which have no timestamp, that got the append time of the
            message around them: a batch under log append time has one for all.
        physical_offsets: messages of Kafka 0.7 whose offsets, positions in a file, became numbers.
    """

    control_batches: int = 0
    empty_batches: int = 0
    producer_batches: int = 0
    transactional_batches: int = 0
    leader_epochs: int = 0
    delete_horizons: int = 0
    offset_ranges: int = 0
    header_records: int = 0
    timestamps: int = 0
    append_times: int = 0
    physical_offsets: int = 0

    def __bool__(self) -> bool:
        """Whether anything was lost."""
        return any(self.as_dict().values())

    def __add__(self, other: Losses) -> Losses:
        """Add the counts of both."""
        return Losses(*map(int.__add__, astuple(self), astuple(other)))

    def as_dict(self) -> dict[str, int]:
        """Each count by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def sentences(self) -> list[str]:
        """The losses as sentences, one for each kind."""
        return [
            text.format(count) for name, text in _TEXT.items() if (count := getattr(self, name))
        ]


_TEXT = {
    "control_batches": "{} control batches left out",
    "empty_batches": "{} batches without records left out",
    "producer_batches": "{} batches lost their producer id, epoch and sequences",
    "transactional_batches": "{} batches are no longer transactional, also aborted ones",
    "leader_epochs": "{} batches lost their leader epoch",
    "delete_horizons": "{} batches lost their delete horizon",
    "offset_ranges": "{} batches end at their last record, below the last offset they covered",
    "header_records": "{} records lost their headers",
    "timestamps": "{} records lost their timestamp",
    "append_times": "{} records without a timestamp got the append time of their batch",
    "physical_offsets": "{} messages got consecutive offsets for their physical ones",
}


def of_batches(table: BatchTable) -> Losses:
    """The fields in headers of magic 2 that magic 0 or 1 cannot keep."""
    control = table.is_control
    data = table.take(~control)

    def count(mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
        return int(np.count_nonzero(mask))

    return Losses(
        control_batches=count(control),
        empty_batches=count(data.record_count == 0),
        producer_batches=count(data.producer_id > NO_PRODUCER_ID),
        transactional_batches=count(data.is_transactional),
        leader_epochs=count(data.leader_epoch != NO_PARTITION_LEADER_EPOCH),
        delete_horizons=count(data.delete_horizon_ms != -1),
    )


def losses_of_records(columns: RecordColumns, magic: int) -> Losses:
    """Count the records whose headers, and the records whose times, `magic` cannot store.

    Only columns that are present are counted.
    """
    losses = Losses()
    if magic < 2 and "headers" in columns.arrays:
        losses.header_records = int(np.count_nonzero(np.diff(columns["headers"].offsets)))
    if magic == 0:
        losses.timestamps = int(np.count_nonzero(columns["timestamp_ms"] != -1))
    return losses


def of_wrappers(whole: WholeBatches, table: BatchTable, magic: int) -> Losses:
    """The losses of messages that are joined with their neighbours in one batch, as in Kafka.

    Args:
        whole: their records, with timestamps.
        table: the batches that `whole` is of.
        magic: the version of the result.

    Source: Kafka RecordsUtil.convertRecordBatch.
    """
    if not (magic and table.magics_seen & 0b10 and table.attributes_seen & LOG_APPEND):
        return Losses()
    batch_has_one = (table.timestamp_type == TimestampType.LOG_APPEND_TIME) & (
        table.max_timestamp != NO_TIMESTAMP
    )
    gained = whole.spread(batch_has_one) & (whole.columns["timestamp_ms"] == NO_TIMESTAMP)
    return Losses(append_times=int(np.count_nonzero(gained)))


#: Attributes of a batch of magic 2 that have a meaning: type of timestamps, transactional, control,
#: delete horizon; without the codec.
_FLAGS = 0x78
#: The treatment of a batch: it is copied; left out; its body gets another codec; its records are
#: written as one batch again; or they are gathered, with those of its neighbours, into batches.
_COPY, _OMIT, _RECODE, _REWRITE, _GATHER = range(5)


@frozen_dataclass
class Target:
    """The format to convert batches to.

    Attributes:
        magic: 0, 1 or 2.
        compression: the codec of every batch; None keeps each batch's own. Control batches are
            never compressed.
        level: the codec's level; None for Kafka's default, and then batches that have the codec
            already stay as they are.
        drop: leave out and count things for which Kafka refuses an append because the magic lacks
            them: control batches, producers, headers. Things that Kafka itself drops silently are
            only counted.
        batch_bytes: about how large batches are that plain messages are gathered into.
        recoded_bytes_max: change nothing but the codec of batches of magic 2, and leave those as
            they are that would have more bytes; None to convert all.

    Raises:
        ValueError: the arguments exclude each other.
    """

    magic: int
    compression: Compression | None = None
    level: int | None = None
    drop: bool = False
    batch_bytes: int = BATCH_BYTES
    recoded_bytes_max: int | None = None

    def __post_init__(self) -> None:
        """Refuse a target that no batch can have."""
        if self.level is not None and self.compression is None:
            raise ValueError("a level needs a codec")
        # The rest is checked where it is for any batch.
        BatchOptions(
            magic=self.magic,
            compression=self.compression or Compression.NONE,
            level=self.level,
        )


@frozen_dataclass
class Conversion:
    """Batches after conversion, with losses and counts.

    Attributes:
        data: the bytes.
        losses: the things that were dropped.
        tally: counts of the work.
    """

    data: bytes
    losses: Losses
    tally: Tally


@dataclass(slots=True)
class Tally:
    """Counts of the work so far.

    Attributes:
        copied_batches: batches, or messages outermost, taken over byte for byte.
        recoded_batches: batches of which only the compression was changed.
        converted_batches: batches, or outermost messages, whose records were rewritten.
        records_converted: the records of those.
    """

    copied_batches: int = 0
    recoded_batches: int = 0
    converted_batches: int = 0
    records_converted: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Add the counts of both."""
        return Tally(*map(int.__add__, astuple(self), astuple(other)))


def convert(
    data: Buffer,
    *,
    magic: int,
    compression: Codec | None = None,
    level: int | None = None,
    on_loss: str = "refuse",
    kafka07: bool = False,
    first_offset: int = 0,
) -> Conversion:
    """Convert the batches in memory; `Converter` goes through files of any size.

    Args:
        data: whole batches; an incomplete last one is left out.
        magic: 0, 1 or 2.
        compression: codec for all batches; None keeps each batch's own.
        level: the codec's level; None for Kafka's default.
        on_loss: "refuse" losses for which Kafka refuses an append, or "drop" them.
        kafka07: the bytes are messages of Kafka 0.7.
        first_offset: the offset of the first message, for Kafka 0.7.

    Raises:
        ValueError: the arguments exclude each other.
        UnsupportedFormatError: the target has no room for parts of the batches.
        FormatError: a batch is damaged, or holds a record that cannot be written.

    Example:
        >>> convert(b"", magic=2).tally.records_converted
        0
    """
    if on_loss not in ("refuse", "drop"):
        raise ValueError(f"on_loss is 'refuse' or 'drop', not {on_loss!r}")
    view = memoryview(data)
    table = scan_all(view, on_bad_crc="note", kafka07=kafka07)
    check_walk(table)
    codec = None if compression is None else codec_of(compression)
    target = Target(magic, codec, level, drop=on_loss == "drop")
    converter = Converter(target, first_offset=first_offset)
    parts = b"".join(converter.convert(view, table))
    return Conversion(parts, converter.losses, converter.tally)


@dataclass(slots=True, eq=False)
class Converter:
    """An unfinished conversion, a stretch of a log at a time. Not for several threads.

    Attributes:
        target: the format to convert batches to.
        first_offset: the offset that the next message of Kafka 0.7 gets.
        on_error: called with each damaged batch instead of raising; unreadable parts of it are left
            out.
        inflated_max: refuse batches that inflate to more bytes.
        losses: the losses so far.
        tally: the counts so far.
    """

    target: Target
    first_offset: int = 0
    on_error: OnError | None = None
    inflated_max: int = INFLATED_BYTES_MAX
    losses: Losses = field(default_factory=Losses)
    tally: Tally = field(default_factory=Tally)
    _workspace: Workspace = field(default_factory=Workspace)

    def convert(
        self, data: memoryview, table: BatchTable, base: int = 0
    ) -> Iterator[bytes | memoryview]:
        """The batches of a table after conversion, in order.

        Args:
            data: bytes of the file from `base` on, all batches of `table` inside.
            table: headers of consecutive batches; wrong checksums noted.
            base: file position of `data[0]`.

        Yields:
            Whole batches, one or more at a time; copied batches are views of `data`.

        Raises:
            FormatError, LimitExceededError: as `kseg.format.convert.convert`.
        """
        codecs = table.codec & 3 if table.kafka07 else table.codec
        bad = table.crc_ok == 0
        ways = self._treatments(table, codecs)
        for first, end in runs(ways, bad):
            some = table.take(slice(first, end))
            if bad[first]:
                for header in some:
                    self._report(crc_error(header))
                continue
            way = int(ways[first])
            if way == _COPY:
                self.tally.copied_batches += len(some)
                yield _bytes_of(data, some, base)
                continue
            if not table.kafka07 and self.target.magic < 2:
                self._count_losses(some)
            if way == _RECODE:
                yield from self._recode(data, some, base)
            elif way == _REWRITE:
                yield from self._rewrite(data, some, base)
            elif way == _GATHER:
                yield from self._gather(data, some, base, codecs[first:end])

    # ---- deciding --------------------------------------------------------------------------------

    def _treatments(self, table: BatchTable, codecs: Array) -> Array:
        """The treatment of each batch, int8[n]: `_COPY`, `_OMIT`, `_RECODE` or others."""
        target, magic = self.target, table.magic
        if table.kafka07:
            return np.full(len(table), _GATHER, np.int8)
        plain = codecs == Compression.NONE
        as_wanted = np.ones(len(table), np.bool_)
        if target.compression is not None:
            as_wanted = codecs == target.compression
            if target.level is not None and target.compression:
                as_wanted[:] = False
        ways = np.where(plain & (magic < 2), _GATHER, _REWRITE)
        bare = (magic >= 2) & (table.is_control | (table.record_count == 0))
        if target.magic >= 2:
            ways[magic >= 2] = _RECODE
            ways[bare] = _COPY
        else:
            ways[bare] = _OMIT
        ways[(magic == target.magic) & as_wanted] = _COPY
        if target.recoded_bytes_max is not None:
            ways[magic < 2] = _COPY
        return ways.astype(np.int8)

    def _count_losses(self, table: BatchTable) -> None:
        """Count the losses of batches, from their headers; refuse those that an append refuses."""
        newer = table.take(table.magic >= 2)
        if not self.target.drop:
            for reason, mask in (
                ("control batches", newer.is_control),
                ("producer ids", newer.producer_id > -1),
                ("transactions", newer.is_transactional),
            ):
                if mask.any():
                    raise self._refusal(reason, newer[int(np.argmax(mask))])
        self.losses += of_batches(newer)

    def _refusal(self, what: str, header: BatchHeader) -> UnsupportedFormatError:
        reason = f"magic {self.target.magic} has no {what}; they would have to be dropped"
        return at_batch(UnsupportedFormatError(reason), header)

    def _report(self, error: KsegError) -> None:
        if self.on_error is None:
            raise error
        self.on_error(error)

    # ---- doing -----------------------------------------------------------------------------------

    def _recode(self, data: memoryview, table: BatchTable, base: int) -> Iterator[bytes]:
        """Compress batches of magic 2 with another codec; their records are not parsed."""
        compression = self.target.compression
        assert compression is not None
        for header in table:
            start = header.position - base
            batch = data[start : start + header.size]
            try:
                if header.record_count < 0:
                    raise record_error(_NEGATIVE_COUNT, header, 0)
                body = codec.decompress(
                    header.codec, batch[BATCH_HEADER_BYTES:], magic=2, limit=self.inflated_max
                )
            except (FormatError, LimitExceededError) as error:
                self._report(at_batch(error, header))
                continue
            recoded = _with_body(
                batch, header, compression, compress(compression, body, level=self.target.level)
            )
            limit = self.target.recoded_bytes_max
            if limit is not None and len(recoded) > limit:
                self.tally.copied_batches += 1
                yield bytes(batch)
                continue
            self.tally.recoded_batches += 1
            yield recoded

    def _rewrite(self, data: memoryview, table: BatchTable, base: int) -> Iterator[bytes]:
        """Rewrite batches and wrapper messages, each as one batch or wrapper."""
        for whole in self._decode(data, table, base):
            self._count_record_losses(whole, table)
            self.losses += of_wrappers(whole, table, self.target.magic)
            source, ends = self._writable_rows(whole.columns), whole.ends.tolist()
            for number, batch in enumerate(whole.batches.tolist()):
                try:
                    options = self._options(table[batch])
                except InvalidRecordError as error:
                    self._report(error)
                    continue
                rows = (ends[number], ends[number + 1])
                yield from self._encode(source, options, *rows, (table, whole))
            self.tally.converted_batches += len(whole.batches)
            if self.target.magic < 2:
                last = whole.columns["offset"][whole.ends[1:] - 1]
                short = (table.magic >= 2)[whole.batches] & (
                    last < table.last_offset[whole.batches]
                )
                self.losses.offset_ranges += int(np.count_nonzero(short))

    def _encode(
        self,
        source: Rows,
        options: BatchOptions,
        first: int,
        end: int,
        origin: tuple[BatchTable, WholeBatches],
        start: int | None = None,
    ) -> Iterator[bytes]:
        """Write rows `[first, end)` as one batch; as several around records that cannot be written.

        Args:
            source: the rows.
            options: the options of the batch.
            first, end: numbers of rows.
            origin: the batches that the rows come from, for errors.
            start: the offset of the first row, for messages of Kafka 0.7; None if rows have theirs.
        """
        numbered = None if start is None else start - first
        while first < end:
            base = None if numbered is None else numbered + first
            try:
                encoded = encode_batch(source, options, base_offset=base, first=first, end=end)
                if encoded.base_offset < 0 and options.magic == 1 and options.compression:
                    # Offsets inside count from the first; no reader would find back from below 0.
                    raise InvalidRecordError("its offsets are negative")
            except FormatError as error:
                row = error.record_index
                self._report(_refused_row(error, first if row is None else row, *origin))
                if row is None:
                    return
                if row > first:
                    yield from self._encode(source, options, first, row, origin, base)
                first = row + 1
                continue
            self.tally.records_converted += end - first
            yield encoded.data
            return

    def _options(self, header: BatchHeader) -> BatchOptions:
        """The options for a batch in the target's form."""
        compression = self.target.compression
        if compression is None and self.target.magic < 2 and header.codec == Compression.ZSTD:
            reason = f"magic {self.target.magic} has no zstd; another codec has to be named"
            raise at_batch(UnsupportedFormatError(reason), header)
        plain = options_for(header, self.target.magic, compression)
        return plain if self.target.level is None else replace(plain, level=self.target.level)

    def _gather(
        self, data: memoryview, table: BatchTable, base: int, codecs: Array
    ) -> Iterator[bytes]:
        """Join plain messages, or messages of Kafka 0.7, in batches of many."""
        for whole in self._decode(data, table, base):
            self._count_record_losses(whole, table)
            columns = whole.columns
            kinds = whole.spread(table.timestamp_type)
            batch_codecs = whole.spread(codecs)
            source = self._writable_rows(columns)
            if table.kafka07:
                self.losses.physical_offsets += len(columns)
                source = rows_of({"value": columns["value"]})
            cuts = batch_cuts(
                columns,
                kinds,
                batch_codecs,
                magic=self.target.magic,
                bounded=self.target.magic >= 2 or bool(self.target.compression),
                batch_bytes=self.target.batch_bytes,
                kafka07=table.kafka07,
            )
            options = BatchOptions()
            written_as: tuple[int, ...] = ()
            for first, end in pairwise(cuts):
                alike = self._gathering_key(
                    int(batch_codecs[first]), int(kinds[first]), columns, first
                )
                append_time = alike[-1]
                if append_time < NO_TIMESTAMP:
                    self._report(_refused_row(no_append_time(append_time), first, table, whole))
                    continue
                if alike != written_as:
                    options, written_as = self._options_of_key(*alike), alike
                start = self.first_offset if table.kafka07 else None
                yield from self._encode(source, options, first, end, (table, whole), start)
                self.first_offset += end - first
            self.tally.converted_batches += len(whole.batches)

    def _gathering_key(
        self, batch_codec: int, kind: int, columns: RecordColumns, first: int
    ) -> tuple[int, int, int]:
        """Codec, type of timestamps and append time of the batch that begins with a row.

        The append time is -1 unless the records have that type of timestamps.
        """
        compression = self.target.compression
        log_append = kind == TimestampType.LOG_APPEND_TIME
        time = int(columns["timestamp_ms"][first]) if log_append else NO_TIMESTAMP
        return batch_codec if compression is None else compression, max(kind, 0), time

    def _options_of_key(self, kind: int, timestamp_type: int, log_append_time: int) -> BatchOptions:
        """The options for messages that are joined into batches, by what these have in common."""
        return BatchOptions(
            magic=self.target.magic,
            compression=Compression(kind),
            level=self.target.level,
            timestamp_type=TimestampType(timestamp_type),
            log_append_time=log_append_time,
        )

    # ---- both ------------------------------------------------------------------------------------

    def _decode(self, data: memoryview, table: BatchTable, base: int) -> Iterator[WholeBatches]:
        """Decode the records of batches; damage goes to `on_error`, if there is one."""
        return decode_whole(
            data,
            table,
            base=base,
            fields=FIELDS_DEFAULT,
            inflated_max=self.inflated_max,
            workspace=self._workspace,
            on_error=self.on_error,
        )

    def _writable_rows(self, columns: RecordColumns) -> Rows:
        """The records without parts that the magic lacks."""
        if self.target.magic >= 2:
            return rows_of(columns)
        return rows_of({name: columns.arrays[name] for name in FIELDS_DEFAULT if name != "headers"})

    def _count_record_losses(self, whole: WholeBatches, table: BatchTable) -> None:
        """Count headers and other parts of records that the target's format does not hold.

        Raises:
            UnsupportedFormatError: a record has headers, and they are not to be dropped.
        """
        lost = losses_of_records(whole.columns, self.target.magic)
        if lost.header_records and not self.target.drop:
            row = int(np.flatnonzero(np.diff(whole.columns["headers"].offsets))[0])
            batch = int(np.searchsorted(whole.ends, row, "right")) - 1
            error = self._refusal("headers", table[int(whole.batches[batch])])
            error.record_index = row - int(whole.ends[batch])
            raise error
        self.losses += lost


def _refused_row(
    error: FormatError, row: int, table: BatchTable, whole: WholeBatches
) -> FormatError:
    """Name the batch that a row of a piece comes from, and the row's number in it."""
    number = int(np.searchsorted(whole.ends, row, "right")) - 1
    if error.record_index is not None:
        error.record_index = row - int(whole.ends[number])
    return at_batch(error, table[int(whole.batches[number])])


def _bytes_of(data: memoryview, table: BatchTable, base: int) -> memoryview:
    """The bytes of consecutive batches."""
    end = int(table.position[-1] + table.size[-1])
    return data[int(table.position[0]) - base : end - base]


def _with_body(batch: memoryview, header: BatchHeader, kind: Compression, body: bytes) -> bytes:
    """A batch of magic 2 with another body; attributes without a meaning are cleared.

    Source: Kafka DefaultRecordBatch.computeAttributes: a rewrite knows its own bits only.
    """
    # In bytes: 8 to 12 are the size, 17 to 21 the checksum of all that follows; first of that come
    # the attributes.
    covered = bytearray(batch[21:BATCH_HEADER_BYTES])
    covered[:2] = (header.attributes & _FLAGS & ~CODEC_MASK | kind).to_bytes(2, "big")
    covered += body
    head = bytearray(batch[:21])
    head[8:12] = (len(head) + len(covered) - LOG_OVERHEAD).to_bytes(4, "big")
    head[17:21] = _core.crc32c(covered).to_bytes(4, "big")
    return bytes(head + covered)
