"""kseg's answers to the requests of `tests/interop/cases.py`, in the words of the Java driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from kseg import errors
from kseg.constants import Compression, ControlType, TimestampType
from kseg.format.builder import BatchBuilder
from kseg.format.columns import decode
from kseg.format.compress import RatioEstimator
from kseg.format.control import EndMarker, control_key
from kseg.format.encode import encode_batch
from kseg.format.header import BatchTable, EncodedBatch
from kseg.format.located import Retention, Verdict
from kseg.format.options import BatchOptions
from kseg.format.request import Request as Wanted
from kseg.format.retain import filter_batches
from kseg.format.values import RecordColumns
from kseg.legacy.message import Message
from kseg.legacy.old_brokers import down_convert
from kseg.log.validate.append import validate as validate_bytes
from kseg.log.validate.append import validate_append
from kseg.log.validate.rules import AppendOrigin, AppendRules, ValidatedBatch, ValidationMetrics
from tests import reference
from tests.conformance.readers import Kseg
from tests.interop import release_0_10
from tests.interop.kafka import rules_of

Request = dict[str, Any]
Answer = dict[str, Any]

#: What an error says, whichever side raises it.
KINDS: tuple[tuple[type[Exception], str], ...] = (
    (errors.CorruptRecordError, "corrupt"),
    (errors.InvalidRecordError, "invalid"),
    (errors.InvalidTimestampError, "timestamp"),
    (errors.UnsupportedFormatError, "unsupported"),
    (errors.DecompressionError, "codec"),
    (errors.LimitExceededError, "limit"),
    (errors.BuilderStateError, "state"),
    (ValueError, "argument"),
)
REFUSALS = tuple(kind for kind, _ in KINDS)
_CODECS = {codec.label: codec for codec in Compression}
_TIMESTAMP_TYPES = {kind.label: kind for kind in TimestampType}


def answer(request: Request, release: str = "3.9.1") -> Answer:
    """What kseg makes of a request; refusals are answers, any other exception is a bug."""
    try:
        return OPERATIONS[request["op"]](request, release)
    except REFUSALS as error:
        return refusal(error)


def refusal(error: Exception) -> Answer:
    """The kind of an error, and which records it is about."""
    found: Answer = {
        "error": next(word for kind, word in KINDS if isinstance(error, kind)),
        "said": str(error),
    }
    faults = getattr(error, "record_errors", ())
    if faults:
        found["records"] = [fault.record_index for fault in faults]
    if getattr(error, "record_index", None) is not None:
        found["index"] = error.record_index
    return found


# From records


def build(request: Request, release: str) -> Answer:
    """The batch record by record; under "bulk" the same from columns at once."""
    return {**_attempt(_build_one_by_one, request), "bulk": _attempt(_build_at_once, request)}


def _attempt(operation: Callable[[Request], Answer], request: Request) -> Answer:
    try:
        return operation(request)
    except REFUSALS as error:
        return refusal(error)


def _options(request: Request) -> dict[str, Any]:
    names = ("level", "log_append_time", "producer_id", "producer_epoch", "base_sequence")
    more = ("transactional", "control", "leader_epoch", "delete_horizon_ms", "magic")
    return {
        "compression": _CODECS[request["codec"]],
        "timestamp_type": _TIMESTAMP_TYPES[request["timestamp_type"]],
        **{name: request[name] for name in (*names, *more)},
    }


def _build_one_by_one(request: Request) -> Answer:
    limits = {n: request[n] for n in ("batch_bytes_max", "expected_ratio") if n in request}
    limits.setdefault("batch_bytes_max", 2**31 - 1)
    builder = BatchBuilder(**_options(request), base_offset=request["base_offset"], **limits)
    rooms = []
    for offset, timestamp, key, value, headers in request["records"]:
        has_room = builder.has_room_for(key, value, headers=headers, timestamp_ms=timestamp)
        rooms.append([builder.is_full, builder.estimated_bytes, has_room])
        builder.append(key, value, timestamp_ms=timestamp, headers=headers, offset=offset)
    for name, timestamp, epoch in request.get("markers", ()):
        builder.append_end_marker(ControlType[name], epoch, timestamp=timestamp)
    if "last_offset" in request:
        builder.override_last_offset(request["last_offset"])
    found: Answer = {"rooms": rooms}
    if "reopened" in request:
        found["first_data"] = builder.build().data
        *producer, transactional = request["reopened"]
        builder.reopen(*producer, transactional=transactional)
    return {**found, **_described(builder.build())}


def _build_at_once(request: Request) -> Answer:
    rows = list(request["records"])
    for name, timestamp, epoch in request.get("markers", ()):
        kind = ControlType[name]
        marker = EndMarker(kind, epoch).to_bytes()
        rows.append([request["base_offset"], timestamp, control_key(kind), marker, []])
    names = ("offset", "timestamp", "key", "value", "headers")
    source: Any = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    options = BatchOptions(**_options(request))
    if "reopened" in request:
        names = ("producer_id", "producer_epoch", "base_sequence", "transactional")
        options = replace(options, **dict(zip(names, request["reopened"], strict=True)))
    place = {"base_offset": request["base_offset"], "last_offset": request.get("last_offset")}
    written = encode_batch(source, options, **place)
    if rows and not options.is_log_append:  # which leaves nothing of the times given
        for columns in decode(memoryview(written.data), written.table, Wanted(control=True)):
            assert encode_batch(columns, options, **place) == written
    return _described(written)


def _described(written: EncodedBatch) -> Answer:
    return {
        "data": written.data,
        "count": written.record_count,
        "uncompressed_bytes": written.uncompressed_bytes,
        "ratio": written.compression_ratio,
        "max_timestamp": written.max_timestamp,
        "shallow_offset": written.offset_of_max_timestamp,
    }


def estimate(request: Request, release: str) -> Answer:
    """Ratios of batches to come."""
    estimator, codec = RatioEstimator(), _CODECS[request["codec"]]
    return {"ratios": [estimator.observe("t", codec, seen) for seen in request["observed"]]}


# From bytes


def validate(request: Request, release: str) -> Answer:
    """For a log to append; what is counted is told with a refusal too."""
    codec, level = _CODECS[request["codec"]], request["level"]
    keeps = request["codec"] == request["source"] and level is None
    metrics = ValidationMetrics()
    try:
        rules = AppendRules(
            magic=request["magic"],
            compression=None if keeps else codec,
            level=level,
            compacted=request["compacted"],
            timestamp_type=_TIMESTAMP_TYPES[request["timestamp_type"]],
            timestamp_before_max_ms=request["before_max"],
            timestamp_after_max_ms=request["after_max"],
            leader_epoch=request["leader_epoch"],
            origin=AppendOrigin[request["origin"]],
            zstd_allowed=request["release"] != "IBP_2_0_IV1" or release.startswith("4"),
        )
        given = {"next_offset": request["next_offset"], "now_ms": request["now"]}
        source = _CODECS[request["source"]]
        taken = validate_bytes(request["data"], rules, source=source, metrics=metrics, **given)
        found = _taken(taken)
    except REFUSALS as error:
        found = refusal(error)
    else:
        if _is_appendable(request):
            # What a leader does has a shorter way through; both must come out alike.
            found["appended"] = _taken(validate_append(request["data"], rules, **given))
    names = {"no_key_compacted": "no_key"}
    counted = {names.get(name, name): count for name, count in asdict(metrics).items() if count}
    return {**found, "metrics": counted}


def _taken(taken: ValidatedBatch) -> Answer:
    return {
        "data": taken.to_bytes(),
        "in_place": taken.in_place,
        "max_timestamp": taken.max_timestamp,
        "log_append_time": taken.log_append_time,
        "sizes_changed": taken.sizes_maybe_changed,
        "temporary_bytes": taken.stats.temporary_bytes,
        "converted": taken.stats.records_converted,
        "next_offset": taken.next_offset,
    }


def _is_appendable(request: Request) -> bool:
    """Whether a log would come as far as the records: checksums, offsets of a producer, the end."""
    walked = reference.walk(request["data"], "memory")
    if walked.end_position != len(request["data"]):
        return False
    batches = walked.batches
    fresh = all(batch.magic < 2 or batch.base_offset == 0 for batch in batches)
    right = all(batch.crc_ok for batch in batches)
    return right and request["origin"] != "RAFT_LEADER" and (fresh or request["origin"] != "CLIENT")


def convert(request: Request, release: str) -> Answer:
    """For older consumers."""
    data, magic = request["data"], request["magic"]
    options = {"first_offset": request["first_offset"], "verify_crc": False}
    converted = down_convert(data, magic, **options)
    return {
        "data": converted.data,
        "temporary_bytes": converted.stats.temporary_bytes,
        "converted": converted.stats.records_converted,
    }


def filtered(request: Request, release: str) -> Answer:
    """What compaction leaves."""
    decisions = request["decisions"]
    batch_of: dict[int, int] = {}
    seen: Counter[int] = Counter()

    def decide(table: BatchTable) -> Verdict:
        batch_of.update((at, index) for index, at in enumerate(table.position.tolist()))
        chosen = decisions[: len(table)]
        return Verdict(
            np.array([Retention[name] for name, _, _ in chosen], np.uint8),
            np.array([marker for _, marker, _ in chosen], np.bool_),
        )

    def keep(columns: RecordColumns) -> np.ndarray[Any, Any]:
        kept = []
        for position in columns.position.tolist():
            kept.append(decisions[batch_of[position]][2][seen[position]] == "1")
            seen[position] += 1
        return np.array(kept, np.bool_)

    found = filter_batches(
        request["data"],
        decide,
        keep,
        now_ms=request["now"],
        delete_retention_ms=request["delete_retention"],
        rules=rules_of(release),
        output_bytes=request["room"],
        verify_crc=False,
    )
    names = ("data", "bytes_read", "messages_read", "bytes_retained", "messages_retained")
    answer = {name: getattr(found, name) for name in (*names, "max_offset", "max_timestamp")}
    return {**answer, "shallow_offset": found.shallow_offset_of_max_timestamp}


# Reading


def parse(request: Request, release: str) -> Answer:
    """Every batch and record."""
    data = request["data"]
    reader = Kseg()
    found = reader.walk(data, "memory")
    out: Answer = {"end_position": found.end_position, "batches": []}
    if found.error:
        out["error"] = found.error
    for fields in found.batches:
        read = reader.read(data, fields["position"], fields["size"])
        rows = [
            [
                *(row["offset"], row["timestamp"], row["sequence"], row["key"], row["value"]),
                [list(pair) for pair in row["headers"]],
            ]
            for row in read.records
        ]
        out["batches"].append({**fields, "records": rows, "records_error": read.error})
    return out


def message(request: Request, release: str) -> Answer:
    """One message, each field asked for by itself."""
    given = Message(request["data"])
    found: Answer = {}
    asked: dict[str, Callable[[], Any]] = {
        "crc": lambda: given.crc,
        "computed_crc": lambda: given.computed_crc,
        "is_valid": lambda: given.is_valid,
        "magic": lambda: given.magic,
        "attributes": lambda: given.attributes,
        "timestamp": lambda: given.timestamp,
        "timestamp_type": lambda: given.timestamp_type.label,
        "codec": lambda: given.compression.label,
        "key": lambda: given.key,
        "value": lambda: given.value,
        "valid": given.ensure_valid,
    }
    for name, ask in asked.items():
        try:
            found[name] = ask()
        except REFUSALS as error:
            found[f"{name}_error"] = refusal(error)
    return found


OPERATIONS: dict[str, Callable[[Request, str], Answer]] = {
    "build": build,
    "estimate": estimate,
    "validate": validate,
    "convert": convert,
    "filter": filtered,
    "parse": parse,
    "message": message,
    **release_0_10.ANSWERS,
}
