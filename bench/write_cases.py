"""What is measured of writing: batches encoded, appended to and checked.

All sides write, or check, the same batches of 1,000 records with keys of 16 bytes and values of
about 100: one batch again and again, which stays in the cache, or a few MiB of them, which do not.
Kafka's own classes always get a log of many, since their clock does not tell one from another.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from bench import datagen, peers, records
from bench.case import Case, java, made
from bench.pairs import Contest, Versus

if TYPE_CHECKING:
    from contextlib import ExitStack

    from kseg.format.values import RecordColumns

BATCH_RECORDS = 1000
CORPUS = "v2-plain-100-thousand"
CORPUS_MIB = 8
HEADER_BYTES = 61


def encode_cases() -> list[Case]:
    """Every case of the group."""
    encode = partial(partial, _prepare_encode)
    codec = partial(partial, _prepare_codec)
    validate = partial(partial, _prepare_validate)
    return [
        Case("encode", "encode columns", "record", encode(as_lists=False, count=1)),
        Case("encode", "encode lists", "record", encode(as_lists=True, count=1)),
        Case("encode", "encode columns, many", "record", encode(as_lists=False)),
        Case("encode", "encode lists, many", "record", encode(as_lists=True)),
        Case("encode", "encode zstd", "record", codec(codec="zstd")),
        Case("encode", "encode lz4", "record", codec(codec="lz4")),
        Case("encode", "append one by one", "record", _prepare_append),
        Case("encode", "validate in place", "byte", validate(corpus=CORPUS)),
        Case("encode", "validate 16 KB batches", "byte", validate(corpus="v2-plain-100-16k")),
    ]


def _log(name: str = CORPUS) -> datagen.Corpus:
    return made(name, mib=min(CORPUS_MIB, datagen.mebibytes()))


@cache
def sources() -> tuple[RecordColumns, ...]:
    """The records of each batch of the log."""
    count = _log().records
    whole = records.make(count, 100)
    return tuple(
        records.part(whole, first, min(first + BATCH_RECORDS, count))
        for first in range(0, count, BATCH_RECORDS)
    )


@cache
def rows() -> tuple[peers.Rows, ...]:
    """The same records as objects, as those want them who take one at a time."""
    held = map(records.lists, sources())
    return tuple(
        list(zip(some["timestamp"], some["key"], some["value"], strict=True)) for some in held
    )


def batches(log: datagen.Corpus) -> list[bytes]:
    """The batches of a log, each numbered from 0 as a producer sends it."""
    from kseg.format.header import scan

    data = log.log.read_bytes()
    ends = [*scan(data).position.tolist()[1:], len(data)]
    starts = [0, *ends[:-1]]
    return [bytes(8) + data[a + 8 : b] for a, b in zip(starts, ends, strict=True)]


def _prepare_encode(_: ExitStack, *, as_lists: bool, count: int | None = None) -> Contest:
    """The first `count` batches of the log, or all."""
    from bench import subjects
    from kseg.format.options import BatchOptions

    log = _log()
    some = sources()[:count]
    given: list[Any] = [records.lists(one) for one in some] if as_lists else [*some]
    total = sum(map(len, some))
    rivals = [
        Versus("aiokafka", partial(peers.aiokafka_build, rows()[:count])),
        Versus("memcpy", peers.memcpy_each(batches(log)[:count], total)),
        *_java("encode", log, log.records),
    ]
    return Contest(subjects.encode(given, BatchOptions()), tuple(rivals), total)


def _prepare_codec(_: ExitStack, *, codec: str) -> Contest:
    from bench import subjects
    from kseg.format.options import BatchOptions

    log = _log()
    kind = datagen.CODECS[codec]
    alone = peers.zstd_alone if codec == "zstd" else peers.lz4_alone
    bodies = [batch[HEADER_BYTES:] for batch in batches(log)]
    rivals = [
        Versus(f"{codec} alone", alone(bodies, log.records)),
        Versus("aiokafka", partial(peers.aiokafka_build, rows(), int(kind))),
        *_java("encode", log, log.records, codec=codec),
    ]
    subject = subjects.encode(sources(), BatchOptions(compression=kind))
    return Contest(subject, tuple(rivals), log.records)


def _prepare_append(_: ExitStack) -> Contest:
    from bench import subjects

    log = _log()
    rivals = [
        Versus("aiokafka", partial(peers.aiokafka_build, rows())),
        *_java("encode", log, log.records),
    ]
    return Contest(subjects.append_one_by_one(rows()), tuple(rivals), log.records)


def _prepare_validate(_: ExitStack, *, corpus: str) -> Contest:
    from bench import subjects
    from kseg.format.header import scan

    log = _log(corpus)
    data, sent = log.log.read_bytes(), batches(log)
    rivals = [
        Versus("verify", lambda: scan(data).end_position),
        *_java("validate", log, log.file_bytes),
    ]
    return Contest(subjects.validate_in_place(sent), tuple(rivals), log.file_bytes)


def _java(command: str, log: datagen.Corpus, units: int, **options: object) -> list[Versus]:
    return [java(command, log, units, **options)] if peers.Java.there() else []
