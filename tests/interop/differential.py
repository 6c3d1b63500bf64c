"""Ask kseg and Kafka's own classes the same, and print every difference.

    python -m tests.interop.differential --cases 20000 --seed 7
    python -m tests.interop.differential --seed 7 --only 123

Each case has a number; the seed and the number repeat it. Exit status 1 says that there was a
difference.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tests import reference
from tests.interop import cases, ours
from tests.interop.kafka import Kafka, unbase64
from tests.reference_codecs import inflate

Answer = dict[str, Any]
Request = dict[str, Any]

_ROUND = 200

#: Kafka's exceptions in kseg's words. Any other is a slip of Kafka's: refusing is all that binds.
KAFKA_KINDS = {
    "CorruptRecordException": "corrupt",
    "InvalidRecordException": "invalid",
    "InvalidTimestampException": "timestamp",
    "UnsupportedCompressionTypeException": "unsupported",
    "UnsupportedForMessageFormatException": "unsupported",
    "KafkaException": "codec",
    "OutOfMemoryError": "memory",
}
SLIP = "slip"
#: Kafka allocates what a length says; nothing follows from the size of its heap.
MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the two do not agree."""

    case: cases.Case
    what: str
    kafka: object
    kseg: object

    def __str__(self) -> str:
        name = f"{self.case.kind} {self.case.seed}:{self.case.number}"
        return f"{name}: {self.what}\n    kafka {self.kafka!r:.600}\n    kseg  {self.kseg!r:.600}"


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
    # Kafka looks at the records while it inflates, kseg after it: of two faults each tells one.
    return kafka == kseg or (None not in (kafka, kseg) and "codec" in (kafka, kseg))


#: Ends of what kseg says where it refuses by intent what Kafka does not look at.
_BY_INTENT = (
    "runs past its record",  # it reads the fields of messages that stay in place
    "last offset of its batch",  # it writes no batch that ends in front of its own records
    "below the base offset",
    "no records to build a batch of",  # nor none at all, as an append
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


# Comparing, by kind of case. Each yields what differs: its name, Kafka's value, kseg's.

Found = Iterator[tuple[str, object, object]]


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
    log_append = request["timestamp_type"] == cases.APPEND
    if "error" not in theirs and not log_append:
        theirs = {**theirs, "log_append_time": -1}  # Kafka tells now, whatever it is good for
    same = theirs["metrics"] == mine["metrics"] or kind_of(theirs) in (SLIP, MEMORY)
    if not same and is_sound(request["data"]):
        yield "metrics", theirs["metrics"], mine["metrics"]
    if theirs.get("in_place"):  # Kafka leaves an incomplete entry at the end to its caller
        data = as_bytes(theirs["data"])
        theirs = {**theirs, "data": data[: reference.walk(data, "memory").end_position]}
    yield from compare_plainly(request, theirs, mine)
    if "appended" in mine:
        for name, value in mine["appended"].items():
            if value != mine[name]:
                yield f"appended: {name}", mine[name], value


def compare_convert(request: Request, theirs: Answer, mine: Answer) -> Found:
    """At once, and chunk by chunk; Kafka's chunks begin again where the first comes to nothing."""
    both = []
    for answer in (theirs, mine):
        chunks = [as_bytes(chunk) for chunk in answer.get("chunks", ())]
        if chunks:  # compressed, the first is each library's own
            size = max(len(request["data"]), len(chunks[0]))
            answer = {**answer, "lazy_size": answer["lazy_size"] - size}
        both.append(answer)
    yield from compare_plainly(request, *both)
    if "chunks" in theirs and mine.get("first_comes_to_something"):
        if len(theirs["chunks"]) != len(mine["chunks"]):
            yield "chunks", len(theirs["chunks"]), len(mine["chunks"])
        for chunk, twin in zip(theirs["chunks"], mine["chunks"], strict=False):
            yield from compare_bytes(as_bytes(chunk), twin, "chunk")


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


COMPARE = {
    "build": compare_build,
    "estimate": compare_plainly,
    "convert": compare_convert,
    "filter": compare_filter,
    "validate": compare_validate,
    "parse": compare_parse,
    "message": compare_message,
}


def kinds_of(release: str) -> list[str]:
    """What a release can be asked: Kafka 4 converts nothing downwards any more."""
    return [kind for kind in COMPARE if kind != "convert" or release.startswith("3")]


# Running


@dataclass(slots=True)
class Figures:
    """What a run came to."""

    asked: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    exchanged: int = 0
    differences: list[Difference] = field(default_factory=list)
    seconds: float = 0.0


def run(kafka: Kafka, given: Iterable[cases.Case]) -> Figures:
    """Give each case to both, many in one go; then let each read what the other compressed."""
    figures = Figures()
    started = time.monotonic()
    for chunk in _chunks(given):
        answers = kafka.ask([one.request for one in chunk])
        exchange: list[Pair] = []
        for case, theirs in zip(chunk, answers, strict=True):
            figures.asked[case.kind] += 1
            figures.refused[case.kind] += "error" in theirs
            found, mine = differences(case, theirs, kafka.release)
            figures.differences += found
            exchange += pairs(case, theirs, mine)
        figures.exchanged += len(exchange)
        figures.differences += read_each_other(kafka, exchange)
    figures.seconds = time.monotonic() - started
    return figures


def differences(case: cases.Case, theirs: Answer, release: str) -> tuple[list[Difference], Answer]:
    """Where kseg's answer is not Kafka's; an exception that is no refusal is one, too."""
    try:
        mine = ours.answer(case.request, release)
    except Exception:
        return [Difference(case, "exception", theirs, traceback.format_exc(limit=-3))], {}
    found = COMPARE[case.kind](case.request, theirs, mine)
    return [Difference(case, *parts) for parts in found], mine


Pair = tuple[cases.Case, bytes, bytes]


def pairs(case: cases.Case, theirs: Answer, mine: Answer) -> Iterator[Pair]:
    """What both have written, where the bytes are not the same: compressed, that is."""
    for written in (mine, mine.get("bulk", {})):
        if "data" in theirs and "data" in written:
            data = as_bytes(theirs["data"])
            if data != written["data"]:
                yield case, data, written["data"]


_OWN = {"position", "size", "crc"}  # of compressed bytes


def read_each_other(kafka: Kafka, exchange: Sequence[Pair]) -> Iterator[Difference]:
    """Kafka reads the same out of both; so does kseg."""
    requests = [{"op": "parse", "data": data} for _, *both in exchange for data in both]
    answers = kafka.ask(requests)
    for (case, data, _), theirs, mine in zip(exchange, answers[::2], answers[1::2], strict=True):
        one, other = (
            [{k: v for k, v in batch.items() if k not in _OWN} for batch in side["batches"]]
            for side in (theirs, mine)
        )
        if one != other:
            yield Difference(case, "Kafka reads", one, other)
        request = {"op": "parse", "data": data}
        for parts in compare_parse(request, theirs, ours.answer(request)):
            yield Difference(case, *parts)


def _chunks(given: Iterable[cases.Case]) -> Iterator[list[cases.Case]]:
    chunk: list[cases.Case] = []
    for case in given:
        chunk.append(case)
        if len(chunk) == _ROUND:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2000, help="how many")
    parser.add_argument("--seed", default="1", help="text; each gives other cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="just the case of this number")
    parser.add_argument("--kinds", nargs="+", choices=COMPARE, default=tuple(COMPARE))
    parser.add_argument("--kafka", default="3.9.1", help="release of Kafka's classes")
    options = parser.parse_args(arguments)
    first, count = options.first, options.cases
    if options.only is not None:
        first, count = options.only, 1
    kinds = set(options.kinds) & set(kinds_of(options.kafka))
    given = cases.of_kinds(kinds, options.seed, first, count)
    with Kafka(options.kafka) as kafka:
        figures = run(kafka, given)
    for difference in figures.differences:
        print(difference)
    for kind, asked in sorted(figures.asked.items()):
        print(f"{kind:10} {asked:6} cases, {figures.refused[kind]:5} refused by Kafka")
    total = sum(figures.asked.values())
    print(f"{total} cases with Kafka {options.kafka}, seed {options.seed}; ", end="")
    print(f"{figures.exchanged} compressed answers read by the other side; ", end="")
    print(f"{len(figures.differences)} differences, {figures.seconds:.1f} s")
    return 1 if figures.differences else 0


if __name__ == "__main__":
    sys.exit(main())
