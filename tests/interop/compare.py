"""Where Kafka's answer and kseg's are not the same: one function for each kind of case.

Each yields what differs as (what, Kafka's value, kseg's). Bytes are compared batch by batch: plain
ones by every byte, compressed ones by their headers and by what they inflate to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from tests import reference
from tests.interop import release_0_10
from tests.interop.cases import APPEND
from tests.interop.kafka import unbase64
from tests.reference_codecs import inflate

Answer = dict[str, Any]
Request = dict[str, Any]
Found = Iterator[tuple[str, object, object]]

#: Kafka's exceptions in kseg's words. Any other is a slip of Kafka's: refusing is all that binds.
KAFKA_KINDS = {
    "CorruptRecordException": "corrupt",
    "InvalidRecordException": "invalid",
    "InvalidTimestampException": "timestamp",
    "UnsupportedCompressionTypeException": "unsupported",
    "UnsupportedForMessageFormatException": "unsupported",
    "KafkaException": "codec",
    "OutOfMemoryError": "memory",
    "InvalidMessageException": "message",
}
SLIP = "slip"
#: Kafka allocates what a length says; nothing follows from the size of its heap.
MEMORY = "memory"


def kind_of(answer: Answer | None) -> str | None:
    """The kind of Kafka's refusal; None where it gave an answer."""
    if answer is None or "error" not in answer:
        return None
    return KAFKA_KINDS.get(answer["error"], SLIP)


def same_refusal(kafka: str | None, kseg: str | None, *, hostile: bool = False) -> bool:
    """Whether two answers are the same as far as refusing goes.

    Bytes that cannot be read may have several faults: which is told is then not compared.
    """
    if kafka == MEMORY:
        return True
    if kafka == SLIP or (hostile and kafka is not None):
        return kseg is not None
    if kafka == "message":
        return kseg in release_0_10.BAD_MESSAGE
    # Kafka looks at the records while it inflates, kseg after it: of two faults each tells one.
    return kafka == kseg or (None not in (kafka, kseg) and "codec" in (kafka, kseg))


#: Ends of what kseg says where it refuses by intent what Kafka does not look at.
_BY_INTENT = (
    "runs past its record",  # it reads the fields of messages that stay in place
    " left",
    "last offset of its batch",  # it writes no batch that ends in front of its own records
    "below the base offset",
    "no records to build a batch of",  # nor none at all, as an append
    " in the header of their batch",  # nor one that lies over what is in front of it in the log
)
#: Beginnings of what Kafka says where it stumbles over what it was not going to write anyway.
_STUMBLES = ("maxOffset undefined", "shallowOffset undefined", "Unknown compression type id")


def known(request: Request, theirs: Answer, mine: Answer) -> bool:
    """Whether only one of the two looks at what is wrong, and kseg by intent."""
    data = request["data"]
    if mine.get("error") == "corrupt" and has_bad_frame(data):
        # kseg walks all headers before it looks at any record.
        return request.get("hostile", False) or theirs.get("bytes_read", 0) < len(data)
    if kind_of(theirs) == "corrupt" and "error" not in mine:
        # Zeros behind the last batch are the room of a preallocated file.
        return not any(data[reference.walk(data, "memory").end_position :])
    if mine.get("error") == "invalid" and mine["said"].endswith(_BY_INTENT):
        return True
    if "a message of magic" in mine.get("said", ""):
        return True  # Kafka takes any above 0 for magic 1
    return theirs.get("said", "").startswith(_STUMBLES)


def has_bad_frame(data: bytes) -> bool:
    """Whether a size or magic is one that no batch has."""
    walk = reference.walk(data, "memory")
    small = any(batch.magic >= 2 and batch.size < 61 for batch in walk.batches)
    return walk.error is not None or small


def is_sound(data: bytes) -> bool:
    """Whether every record can be read."""
    try:
        for batch in reference.walk(data, "memory").batches:
            for _ in reference.records(batch):
                pass
    except reference.RefusedError:
        return False
    return True


def has_odd_names(data: bytes) -> bool:
    """Whether a header's name is no text: Kafka writes U+FFFD for it, kseg the bytes it was."""
    try:
        for batch in reference.walk(data, "memory").batches:
            for record in reference.records(batch):
                for name, _ in record.headers:
                    name.decode()
    except UnicodeDecodeError:
        return True
    except reference.RefusedError:
        pass
    return False


# By kind of case


def compare_build(request: Request, theirs: Answer, mine: Answer) -> Found:
    """Record by record, and all at once."""
    ways = [("builder", mine), ("bulk", mine["bulk"])]
    if request["control"] and request["records"]:
        del ways[1]  # the bulk form also serves compaction, which keeps markers of unknown types
    for way, built in ways:
        if "error" in theirs or "error" in built:
            if not same_refusal(kind_of(theirs), built.get("error")):
                yield way, theirs, built
            elif built.get("index") not in (None, theirs.get("appended")):
                yield f"{way}: refused record", theirs, built
            continue
        for name in ("count", "max_timestamp", "shallow_offset"):
            if name in theirs and theirs[name] != built[name]:
                yield f"{way}: {name}", theirs[name], built[name]
        overhead = _HEADER_BYTES[request["magic"], request["codec"] != "none"]
        size = theirs["uncompressed_bytes"] - overhead
        if theirs["count"] and size != built["uncompressed_bytes"]:
            yield f"{way}: uncompressed_bytes", size, built["uncompressed_bytes"]
        if request["codec"] == "none" and built["ratio"] != 1.0:
            yield f"{way}: ratio", theirs["ratio"], built["ratio"]
        for name in ("data", "first_data"):
            if name in theirs and name in built:
                yield from compare_bytes(as_bytes(theirs[name]), built[name], f"{way}: {name}")
    if "error" not in mine and theirs["rooms"] != mine["rooms"]:
        yield "full, estimated size, has room", theirs["rooms"], mine["rooms"]


#: In front of a batch's records; 12 and the message's header without its lengths, of a wrapper.
_HEADER_BYTES = {
    (0, False): 0,
    (1, False): 0,
    (0, True): 26,
    (1, True): 34,
    (2, False): 61,
    (2, True): 61,
}


def compare_plainly(request: Request, theirs: Answer, mine: Answer) -> Found:
    """Refusals by their kind and records, bytes by what they hold, the rest as it is."""
    if "error" in theirs or "error" in mine:
        hostile = request.get("hostile", False) or not is_sound(request.get("data", b""))
        if not same_refusal(kind_of(theirs), mine.get("error"), hostile=hostile):
            if not known(request, theirs, mine):
                yield "refusal", theirs, mine
        elif not hostile and "records" in theirs and theirs["records"] != mine.get("records"):
            yield "refused records", theirs["records"], mine.get("records")
        return
    if request.get("hostile") and has_odd_names(request["data"]):
        return
    for name in theirs:
        if name in ("metrics", "chunks"):
            continue
        if name == "data":
            yield from compare_bytes(as_bytes(theirs["data"]), mine["data"], "data")
        elif theirs[name] != mine[name]:
            yield name, theirs[name], mine[name]


def compare_validate(request: Request, theirs: Answer, mine: Answer) -> Found:
    """Bytes, times, what it cost, what was counted."""
    if theirs.get("error") == "UnsupportedOperationException":
        return  # Kafka goes back for keys that it skipped; to rebuild and to refuse are both right
    log_append = request["timestamp_type"] == APPEND
    if "error" not in theirs and not log_append:
        theirs = {**theirs, "log_append_time": -1}  # Kafka tells now, whatever it is good for
    same = theirs["metrics"] == mine["metrics"] or kind_of(theirs) in (SLIP, MEMORY)
    if not same and is_sound(request["data"]) and not has_bad_frame(request["data"]):
        yield "metrics", theirs["metrics"], mine["metrics"]
    if theirs.get("in_place"):  # Kafka leaves an incomplete entry at the end to its caller
        data = as_bytes(theirs["data"])
        theirs = {**theirs, "data": data[: reference.walk(data, "memory").end_position]}
    yield from compare_plainly(request, theirs, mine)
    if "appended" in mine:
        for name, value in mine["appended"].items():
            if value != mine[name]:
                yield f"appended: {name}", mine[name], value


def compare_filter(request: Request, theirs: Answer, mine: Answer) -> Found:
    """Sizes are those of the bytes: compressed, they are each library's own."""
    both = []
    for answer in (theirs, mine):
        if "bytes_retained" in answer:
            over = answer["bytes_retained"] - len(as_bytes(answer["data"]))
            answer = {**answer, "bytes_retained": over}
        both.append(answer)
    yield from compare_plainly(request, *both)


def as_bytes(data: bytes | str) -> bytes:
    """Kafka's bytes come as base64."""
    return data if isinstance(data, bytes) else unbase64(data) or b""


def compare_bytes(kafka: bytes, kseg: bytes, what: str) -> Found:
    """Batch by batch: plain ones by every byte, compressed ones inflated."""
    if kafka == kseg:
        return
    one, other = reference.walk(kafka, "memory"), reference.walk(kseg, "memory")
    if len(one.batches) != len(other.batches):
        yield f"{what}: batches", len(one.batches), len(other.batches)
    for batch, twin in zip(one.batches, other.batches, strict=False):
        if batch.data != twin.data:
            yield from _different_fields(contents(batch), contents(twin), what)
    if kafka[one.end_position :] != kseg[other.end_position :]:
        yield f"{what}: rest", kafka[one.end_position :], kseg[other.end_position :]


def _different_fields(kafka: Answer, kseg: Answer, what: str) -> Found:
    names = [name for name in kafka if kafka[name] != kseg.get(name)]
    if names:
        pair = ({name: side.get(name) for name in names} for side in (kafka, kseg))
        yield f"{what}: {', '.join(names)}", *pair


def contents(batch: reference.Batch) -> dict[str, Any]:
    """Header fields and inflated body of a batch; size and checksum only where it is plain."""
    fields = asdict(batch)
    body = fields.pop("data")
    del fields["position"]
    if batch.codec:
        del fields["size"], fields["crc"]
        body = body[61:]
        if batch.magic < 2:
            plain = replace(batch, attributes=batch.attributes & ~7)
            body = next(iter(reference.records(plain))).value
        body = inflate(batch.codec, body, magic=batch.magic) if body else body
    return {**fields, "body": body}


def compare_message(request: Request, theirs: Answer, mine: Answer) -> Found:
    """Field by field; of less than a message only whether it is valid."""
    if len(request["data"]) < 14:
        theirs, mine = ({"valid_error": side.get("valid_error")} for side in (theirs, mine))
    for name in {*theirs, *mine}:
        field_name = name.removesuffix("_error")
        if name != field_name:
            if not same_refusal(kind_of(theirs.get(name)), (mine.get(name) or {}).get("error")):
                yield name, theirs.get(name), mine.get(name)
        elif name in theirs:
            value = theirs[name]
            value = unbase64(value) if name in ("key", "value") else value
            if value != mine.get(name):
                yield name, value, mine.get(name)


def compare_parse(request: dict[str, Any], theirs: Answer, mine: Answer) -> Found:
    """Walk, headers, records."""
    batches = reference.walk(request["data"], "memory").batches
    odd = {batch.position for batch in batches if _has_odd_inner_magic(batch)}
    if not same_refusal(kind_of(theirs), mine.get("error")):
        yield "walk", theirs.get("error"), mine.get("error")
    if theirs["end_position"] != mine["end_position"]:
        yield "end_position", theirs["end_position"], mine["end_position"]
    for kafka, kseg in zip(theirs["batches"], mine["batches"], strict=False):
        if kafka["position"] not in odd:
            yield from _compare_batch(kafka, kseg)


def _has_odd_inner_magic(batch: reference.Batch) -> bool:
    """Whether a message in a wrapper has a magic that none has; Kafka takes it for magic 1."""
    if batch.magic >= 2 or not batch.codec:
        return False
    try:
        list(reference.records(batch))
    except reference.RefusedError as error:
        return "inner message of magic" in str(error)
    return False


_NO_FIELDS = {"records", "records_error", "error", "skip_error"}


def _compare_batch(kafka: Answer, kseg: Answer) -> Found:
    for name, value in kafka.items():
        if name not in _NO_FIELDS and value != kseg[name] and (name, value) != ("count", None):
            yield f"{name} @ {kafka['position']}", value, kseg[name]
    refused = kind_of(kafka.get("records_error"))
    if not same_refusal(refused, kseg["records_error"]):
        yield f"records @ {kafka['position']}", kafka.get("records_error"), kseg["records_error"]
    if refused == MEMORY:
        return
    rows = [_row(row) for row in kafka["records"]]
    if rows != [_named(row) for row in kseg["records"]]:
        yield f"records @ {kafka['position']}", rows, kseg["records"]


def _row(row: list[Any]) -> list[Any]:
    """A record of Kafka's, its bytes as bytes."""
    headers = [[unbase64(name), unbase64(value)] for name, value in row[5]]
    return [*row[:3], unbase64(row[3]), unbase64(row[4]), headers]


def _named(row: list[Any]) -> list[Any]:
    """Header names as Java's strings hold them: what is not UTF-8 is replaced."""
    headers = [[name.decode(errors="replace").encode(), value] for name, value in row[5]]
    return [*row[:5], headers]


def compare_0_10(request: Request, theirs: Answer, mine: Answer) -> Found:
    """Rows and messages as they are; the rest as for later releases."""
    if request["op"] == "validate_0_10" and release_0_10.is_beyond(request):
        return
    if "rows" in theirs:
        theirs = {**theirs, "rows": list(release_0_10.rows_of(theirs, unbase64))}
    for name in ("as_0", "as_1"):
        if name in theirs:
            theirs = {**theirs, name: as_bytes(theirs[name])}
    yield from compare_plainly(request, theirs, mine)


COMPARE: dict[str, Callable[[Request, Answer, Answer], Found]] = {
    "build": compare_build,
    "estimate": compare_plainly,
    "convert": compare_plainly,
    "filter": compare_filter,
    "validate": compare_validate,
    "parse": compare_parse,
    "message": compare_message,
    **dict.fromkeys(release_0_10.ANSWERS, compare_0_10),
}


def kinds_of(release: str) -> list[str]:
    """What a release can be asked: Kafka 4 converts nothing downwards any more."""
    if release.startswith("0.10"):
        return list(release_0_10.ANSWERS)
    kinds = [kind for kind in COMPARE if kind not in release_0_10.ANSWERS]
    return [kind for kind in kinds if kind != "convert" or release.startswith("3")]
