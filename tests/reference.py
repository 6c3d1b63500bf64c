"""A second implementation of reading Kafka's record formats, in plain Python.

The oracle of the property tests: it shares no line with kseg and is written for reading. It takes
whole files as `bytes`; it is slow. Two layers, each for every generation of the format:

    walk(data, policy)   where the batches lie  -> Walk of Batch
    records(batch)       what a batch holds     -> Record, one by one

Anything that must not be accepted raises `RefusedError`. Kafka 0.7 is in `tests/reference07.py`,
checksums and codecs are in `tests/reference_codecs.py`. Numbers in brackets are byte positions.

    batch, magic 2   base offset i64 [0] length i32 [8] leader epoch i32 [12] magic i8 [16]
                     crc u32 [17] attributes i16 [21] last offset delta i32 [23]
                     base timestamp i64 [27] max timestamp i64 [35] producer id i64 [43]
                     producer epoch i16 [51] base sequence i32 [53] count i32 [57] records [61];
                     crc is CRC-32C of [21..]
    entry, magic 0/1 offset i64 [0] size i32 [8] crc u32 [12] magic i8 [16] attributes u8 [17]
                     (magic 1: timestamp i64 [18]) key and value, each i32 length and bytes;
                     crc is CRC-32 of [16..]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from struct import unpack_from

from tests.reference_codecs import RefusedError as RefusedError
from tests.reference_codecs import crc32, crc32c, inflate

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
CONTROL_TYPES = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)
SEQUENCE_MAX = 2**31 - 1


def int32(value: int) -> int:
    """The low 32 bits as a signed number: what Java's int arithmetic leaves."""
    return (value + 2**31) % 2**32 - 2**31


def int64(value: int) -> int:
    """The low 64 bits as a signed number: what Java's long arithmetic leaves."""
    return (value + 2**63) % 2**64 - 2**63


def increment_sequence(sequence: int, by: int) -> int:
    """A 31-bit counter that wraps from 2147483647 to 0."""
    if sequence > int32(SEQUENCE_MAX - by):
        return int32(by - (SEQUENCE_MAX - sequence) - 1)
    return int32(sequence + by)


# Variable-length integers


def _read_bits(data: bytes, position: int, end: int, byte_count: int) -> tuple[int, int]:
    bits = 0
    for index in range(byte_count):
        if position + index >= end:
            raise RefusedError("invalid", f"the data ends inside the varint at {position}")
        byte = data[position + index]
        bits |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return bits, position + index + 1
    raise RefusedError("invalid", f"varint at {position} longer than {byte_count} bytes")


def read_uvarint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """At most 5 bytes; bits beyond the 32nd are dropped. Answers (value, position after it)."""
    bits, position = _read_bits(data, position, end, 5)
    return bits & 0xFFFFFFFF, position


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Zigzag of 32 bits, at most 5 bytes."""
    bits, position = read_uvarint(data, position, end)
    return (bits >> 1) ^ -(bits & 1), position


def read_varlong(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Zigzag of 64 bits, at most 10 bytes."""
    bits, position = _read_bits(data, position, end, 10)
    bits &= 0xFFFFFFFFFFFFFFFF
    return (bits >> 1) ^ -(bits & 1), position


# Batches


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of magic 2 or an outermost entry of magic 0 or 1; -1 for fields it does not have."""

    position: int
    size: int
    magic: int
    crc: int
    crc_ok: bool
    attributes: int
    last_offset: int
    max_timestamp: int
    data: bytes = field(repr=False)
    base_offset: int = -1
    base_timestamp: int = -1
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    record_count: int = -1

    @property
    def codec(self) -> int:
        """0 to 4; 5 to 7 mean nothing."""
        return self.attributes & 7

    @property
    def timestamp_type(self) -> int:
        """-1 none, 0 create, 1 log append."""
        return -1 if self.magic == 0 else (self.attributes >> 3) & 1

    @property
    def is_transactional(self) -> bool:
        """Magic 2 only."""
        return self.magic >= 2 and bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        """Magic 2 only."""
        return self.magic >= 2 and bool(self.attributes & 0x20)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Bit 6 turns the base timestamp into a delete horizon."""
        return self.base_timestamp if self.magic >= 2 and self.attributes & 0x40 else None

    @property
    def last_sequence(self) -> int:
        """-1 without a base sequence."""
        if self.base_sequence == -1:
            return -1
        return increment_sequence(self.base_sequence, int32(self.last_offset - self.base_offset))

    def ensure_valid(self) -> None:
        """Length and CRC, the two things a reader checks before it believes a batch."""
        smallest = 61 if self.magic >= 2 else 12 + 14
        if self.size < smallest:
            raise RefusedError("corrupt", f"batch of {self.size} bytes, {smallest} at least")
        if not self.crc_ok:
            raise RefusedError("corrupt", f"stored crc {self.crc}")


def parse_batch(data: bytes, position: int, size: int) -> Batch:
    """The batch that the walk found at `position`; a field beyond its end reads as zero."""
    own = data[position : position + size]
    padded = own + bytes(61)
    magic = unpack_from(">b", padded, 16)[0]
    if magic < 2:
        return _parse_entry(own, padded, position, magic)
    base_offset, _, leader_epoch, _, crc, attributes, delta = unpack_from(">qiibIhi", padded)
    base_timestamp, max_timestamp, producer_id, epoch, sequence, count = unpack_from(
        ">qqqhii", padded, 27
    )
    return Batch(
        position=position,
        size=size,
        magic=magic,
        crc=crc,
        crc_ok=size >= 61 and crc32c(own[21:]) == crc,
        attributes=attributes,
        base_offset=base_offset,
        last_offset=int64(base_offset + delta),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
        data=own,
    )


def _parse_entry(own: bytes, padded: bytes, position: int, magic: int) -> Batch:
    offset, _, crc, _, attributes = unpack_from(">qiIbB", padded)
    plain = attributes & 7 == 0
    timestamp = unpack_from(">q", padded, 18)[0] if magic == 1 else -1
    return Batch(
        position=position,
        size=len(own),
        magic=magic,
        crc=crc,
        crc_ok=crc32(own[16:]) == crc,
        attributes=attributes,
        base_offset=offset if plain else -1,
        last_offset=offset,
        max_timestamp=timestamp,
        record_count=1 if plain else -1,
        data=own,
    )


# The walk


@dataclass(frozen=True, slots=True)
class Walk:
    """`end_position` follows the last whole batch; `stop` says why the walk ended there.

    `stop`: `end` (nothing left), `torn` (fewer bytes than announced), `zero` (only zeros left),
    `length` or `magic` (such a value in the next header).
    """

    batches: list[Batch]
    end_position: int
    stop: str

    @property
    def error(self) -> str | None:
        """`corrupt` where Kafka's reader raises, nothing where it just ends."""
        return "corrupt" if self.stop in ("length", "magic", "zero") else None


def walk(data: bytes, policy: str = "strict") -> Walk:
    """Find every whole batch; never raises.

    The policies differ in the last bytes of damaged data only: `memory` and `file` are what Kafka's
    two readers do, `strict` is `memory` that also tells zeros and torn tails apart.
    """
    judge = {"memory": _next_in_memory, "file": _next_in_file, "strict": _next_strict}[policy]
    batches: list[Batch] = []
    position = 0
    while True:
        found = judge(data, position)
        if isinstance(found, str):
            return Walk(batches, position, found)
        batches.append(parse_batch(data, position, found))
        position += found


def _next_in_memory(data: bytes, position: int) -> int | str:
    """Size of the batch at `position`, or why there is none."""
    left = len(data) - position
    if left < 12:
        return "end"
    (length,) = unpack_from(">i", data, position + 8)
    if length < 14:
        return "length"
    if left < 17:
        return "end"
    if not 0 <= unpack_from(">b", data, position + 16)[0] <= 2:
        return "magic"
    return 12 + length if 12 + length <= left else "end"


def _next_in_file(data: bytes, position: int) -> int | str:
    left = len(data) - position
    if left <= 17:
        return "end"
    (length,) = unpack_from(">i", data, position + 8)
    if length < 14:
        return "length"
    return 12 + length if 12 + length <= left else "end"


def _next_strict(data: bytes, position: int) -> int | str:
    rest = data[position:]
    if not rest:
        return "end"
    if not any(rest):
        return "zero"
    found = _next_in_memory(data, position)
    return "torn" if found == "end" else found


# Sound batches behind damage


def sound_behind(
    data: bytes, start: int, first_offset: int = 0, last_offset: int = 2**63 - 1
) -> list[list[Batch]]:
    """Runs of sound batches from `start` on, every position tried, one byte at a time.

    A damaged batch at `start`, or right behind a run, takes up what its length says if a sound one
    with larger offsets begins there. Of runs that contradict each other the one with more bytes
    stays.
    """

    def at(position: int) -> Batch | None:
        found = _next_in_memory(data, position)
        if isinstance(found, str):
            return None
        read = parse_batch(data, position, found)
        within = first_offset <= _order(read) <= read.last_offset <= last_offset
        return read if within and _can_be(read) else None

    runs: list[list[Batch]] = []
    position = frontier = start
    while position < len(data):
        found = at(position)
        if found is not None and found.crc_ok:
            before = runs[-1][-1] if runs else None
            goes_on = before is not None and before.position + before.size == position
            if goes_on and before is not None and _order(found) > before.last_offset:
                runs[-1].append(found)
            else:
                runs.append([found])
            position = frontier = position + found.size
            continue
        if found is not None and position == frontier:
            behind = at(position + found.size)
            if behind is not None and behind.crc_ok and _order(behind) > found.last_offset:
                position += found.size
                continue
        position += 1
    kept: list[list[Batch]] = []
    for run in runs:
        against = [one for one in kept if one[-1].last_offset >= _order(run[0])]
        if not against or sum(map(_run_bytes, against)) < _run_bytes(run):
            kept = [*kept[: len(kept) - len(against)], run]
    return kept


def _run_bytes(run: list[Batch]) -> int:
    return sum(batch.size for batch in run)


def _order(batch: Batch) -> int:
    """The least offset that the header tells."""
    return batch.last_offset if batch.base_offset < 0 and batch.magic < 2 else batch.base_offset


def _can_be(batch: Batch) -> bool:
    """Whether the fields of a header are such as a batch can have."""
    if batch.magic == 2:
        count_max = batch.last_offset - batch.base_offset + 1
        known = batch.attributes & ~0x7F == 0 and batch.codec <= 4
        return known and batch.size >= 61 and 0 <= batch.record_count <= count_max
    if batch.attributes & ~0x0F or batch.codec > 3:
        return False
    at = 26 if batch.magic == 1 else 18
    for _ in ("key", "value"):
        if at + 4 > batch.size:
            return False
        (length,) = unpack_from(">i", batch.data, at)
        if length < -1:
            return False
        at += 4 + max(length, 0)
    return at == batch.size


# Records


@dataclass(frozen=True, slots=True)
class Record:
    """One record; `crc_ok` is the inner CRC of a magic 0 or 1 message."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    sequence: int = -1
    size: int = 0
    attributes: int = 0
    magic: int = 2
    crc_ok: bool = True


def records(batch: Batch) -> Iterator[Record]:
    """Records as far as they are good, then `RefusedError`; no CRC of the batch is looked at.

    A compressed batch of magic 2 is decoded as a whole first: an error anywhere yields no record.
    """
    if batch.magic < 2:
        yield from _records01(batch)
    elif batch.codec:
        yield from list(_records2(batch))
    else:
        yield from _records2(batch)


def _records2(batch: Batch) -> Iterator[Record]:
    batch_count = batch.record_count
    if batch.size < 61:
        raise RefusedError("corrupt", f"batch of {batch.size} bytes, 61 at least")
    if batch.codec >= len(CODECS):
        raise RefusedError("unsupported", f"codec {batch.codec}")
    if batch_count < 0:
        raise RefusedError("invalid", f"record count {batch_count}")
    if batch_count == 0:
        return
    body = inflate(batch.codec, batch.data[61:], magic=2)
    position = 0
    for index in range(batch_count):
        record, position = _read_record(batch, body, position)
        if index == batch_count - 1 and position != len(body):
            raise RefusedError("invalid", f"{len(body) - position} bytes after the last record")
        yield record


def _read_record(batch: Batch, body: bytes, position: int) -> tuple[Record, int]:
    length, start = read_varint(body, position, len(body))
    if length <= 0 or length > len(body) - start:
        raise RefusedError("invalid", f"record length {length}, {len(body) - start} bytes left")
    end = start + length
    timestamp_delta, at = read_varlong(body, start + 1, end)
    offset_delta, at = read_varint(body, at, end)
    key, at = _read_bytes(body, at, end)
    value, at = _read_bytes(body, at, end)
    headers, at = _read_headers(body, at, end)
    if at != end:
        raise RefusedError("invalid", f"record length {length}, {at - start} used")
    timestamp = int64(batch.base_timestamp + timestamp_delta)
    sequence = batch.base_sequence
    record = Record(
        offset=int64(batch.base_offset + offset_delta),
        timestamp=batch.max_timestamp if batch.timestamp_type == 1 else timestamp,
        key=key,
        value=value,
        headers=headers,
        sequence=increment_sequence(sequence, offset_delta) if sequence >= 0 else -1,
        size=length + _varint_size(length),
        attributes=body[start],
    )
    return record, end


def _varint_size(value: int) -> int:
    """Bytes of the shortest varint of a length, which is never negative."""
    return max(1, -(-(value << 1).bit_length() // 7))


def _read_bytes(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """A length and that many bytes; any negative length is null."""
    length, at = read_varint(body, at, end)
    if length < 0:
        return None, at
    if length > end - at:
        raise RefusedError("invalid", f"{length} bytes announced, {end - at} left in the record")
    return body[at : at + length], at + length


def _read_headers(
    body: bytes, at: int, end: int
) -> tuple[tuple[tuple[bytes, bytes | None], ...], int]:
    count, at = read_varint(body, at, end)
    if not 0 <= count <= end - at:
        raise RefusedError("invalid", f"{count} headers announced, {end - at} bytes left")
    headers = []
    for _ in range(count):
        name, at = _read_bytes(body, at, end)
        if name is None:
            raise RefusedError("invalid", "header without a name")
        value, at = _read_bytes(body, at, end)
        headers.append((name, value))
    return tuple(headers), at


def control_type(key: bytes | None) -> str:
    """The name in a control record's key; versions above 0 read as 0. No part of iteration."""
    if key is None or len(key) < 4:
        raise RefusedError("invalid", "control key shorter than 4 bytes")
    version, number = unpack_from(">hh", key)
    if version < 0:
        raise RefusedError("invalid", f"control key version {version}")
    return CONTROL_TYPES[number] if 0 <= number < len(CONTROL_TYPES) else "UNKNOWN"


# Magic 0 and 1


def _records01(batch: Batch) -> Iterator[Record]:
    if batch.codec >= len(CODECS):
        raise RefusedError("unsupported", f"codec {batch.codec}")
    if batch.codec == 0:
        yield _message(batch)
        return
    if batch.codec == 4:
        raise RefusedError("invalid", f"zstd in magic {batch.magic}")
    if batch.magic < 0:
        raise RefusedError("invalid", f"wrapper of magic {batch.magic}")
    value = _message(batch).value
    if value is None:
        raise RefusedError("invalid", "wrapper without a value")
    inner = list(_inner_entries(inflate(batch.codec, value, magic=batch.magic)))
    if not inner:
        raise RefusedError("invalid", "wrapper without messages")
    base = _wrapper_base(batch, inner[-1].last_offset)
    for entry in inner:
        if not 0 <= entry.magic <= 1:
            raise RefusedError("invalid", f"inner message of magic {entry.magic}")
        if entry.codec:
            raise RefusedError("invalid", "compressed message inside a compressed message")
        message = _message(entry)
        if entry.magic == 1 and batch.timestamp_type == 1:
            message = replace(message, timestamp=batch.max_timestamp)
        yield replace(message, offset=int64(base + message.offset))


def _wrapper_base(batch: Batch, last: int) -> int:
    """What to add to the offsets of the inner messages; the wrapper's magic decides."""
    if batch.magic == 0 or batch.last_offset == 0:
        return 0
    if batch.last_offset < last:
        raise RefusedError(
            "invalid", f"wrapper offset {batch.last_offset}, last inner offset {last}"
        )
    return batch.last_offset - last


def _inner_entries(data: bytes) -> Iterator[Batch]:
    """A partial entry at the end is dropped in silence."""
    position = 0
    while len(data) - position >= 12:
        (size,) = unpack_from(">i", data, position + 8)
        if size < 14:
            raise RefusedError("corrupt", f"inner message of {size} bytes")
        if size > len(data) - position - 12:
            return
        yield _parse_entry_at(data, position, 12 + size)
        position += 12 + size


def _parse_entry_at(data: bytes, position: int, size: int) -> Batch:
    own = data[position : position + size]
    return _parse_entry(own, own + bytes(61), position, unpack_from(">b", own, 16)[0])


def _message(entry: Batch) -> Record:
    """Key and value of one message. Bytes after the value are ignored."""
    at = 18 if entry.magic < 1 else 26
    if entry.size < at + 8:
        raise RefusedError("invalid", f"message of magic {entry.magic} in {entry.size} bytes")
    key, at = _read_bytes01(entry.data, at)
    value, at = _read_bytes01(entry.data, at)
    return Record(
        offset=entry.last_offset,
        timestamp=entry.max_timestamp,
        key=key,
        value=value,
        size=entry.size,
        magic=entry.magic,
        crc_ok=entry.crc_ok,
    )


def _read_bytes01(data: bytes, at: int) -> tuple[bytes | None, int]:
    if len(data) - at < 4:
        raise RefusedError("invalid", "message ends inside a length")
    (length,) = unpack_from(">i", data, at)
    if length < 0:
        return None, at + 4
    if length > len(data) - at - 4:
        raise RefusedError("invalid", f"{length} bytes announced, {len(data) - at - 4} left")
    return data[at + 4 : at + 4 + length], at + 4 + length


# Compaction


def compacted(
    batches: Iterable[Batch], *, end_offset: int, start_offset: int = 0
) -> list[tuple[int, bytes | None, bytes | None]]:
    """What one compaction leaves of records: offset, key and value of each.

    From `end_offset` on all is as it was. In front of it nothing is left of aborted transactions
    and of records without a key. Of each key that comes from `start_offset` on the last record
    stays. Tombstones stay, too: they wait for their horizon.
    """
    listed = list(batches)
    aborted = aborted_batches(listed)
    rows = [
        (record.offset, record.key, record.value)
        for number, batch in enumerate(listed)
        if not batch.is_control and (number not in aborted or batch.base_offset >= end_offset)
        for record in records(batch)
    ]
    last = {key: offset for offset, key, _ in rows if start_offset <= offset < end_offset}
    return [
        row
        for row in rows
        if row[0] >= end_offset or (row[1] is not None and last.get(row[1], -1) <= row[0])
    ]


def aborted_batches(batches: list[Batch]) -> set[int]:
    """Which batches hold data of aborted transactions, by their number."""
    opened: dict[int, list[int]] = {}
    found: set[int] = set()
    for number, batch in enumerate(batches):
        if batch.is_control:
            marker = next(iter(records(batch)), None)
            data = opened.pop(batch.producer_id, [])
            if marker is not None and control_type(marker.key) == "ABORT":
                found.update(data)
        elif batch.is_transactional:
            opened.setdefault(batch.producer_id, []).append(number)
    return found
