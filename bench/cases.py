"""What is measured and against whom, in the order of the table; `goals` says what to hold."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from bench import datagen, peers, records
from bench.append_cases import append_cases
from bench.case import JAVA, Case, java, made, per_record
from bench.compact_cases import compact_cases
from bench.dump_cases import dump_cases
from bench.fetch_cases import fetch_cases
from bench.grep_cases import grep_cases
from bench.groups_cases import groups_cases
from bench.growth_cases import growth_cases
from bench.lazy_cases import lazy_cases
from bench.metadata_cases import metadata_cases
from bench.open_cases import open_cases
from bench.pairs import Contest, Versus
from bench.recover_cases import recover_cases
from bench.typed_cases import typed_cases
from bench.write_cases import encode_cases

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

GROUPS = (
    "crc",
    "scan",
    "columns",
    "codecs",
    "encode",
    "arrow",
    "index",
    "open",
    "append",
    "fetch",
    "recover",
    "compact",
    "growth",
    "dump",
    "grep",
    "groups",
    "lazy",
    "typed",
    "metadata",
)
#: kafka-python needs microseconds per record, so it gets this much of a log.
SLOW_PEER_BYTES = 1 << 20
INDEX_ENTRIES = 1_300_000
LOOKUPS = 10_000

__all__ = ["GROUPS", "JAVA", "Case", "cases"]

VALUES = {"10 B": "v2-plain-10-16k", "100 B": "v2-plain-100-16k", "1 KB": "v2-plain-1000-16k"}
ONE_RECORD = "v2-plain-100-one"
PLAIN = VALUES["100 B"]


Limit = Literal["read sum", "memcpy", "codec alone"]


def cases(groups: tuple[str, ...] = GROUPS) -> list[Case]:
    """Every case of some groups."""
    makers = {
        "crc": _crc_cases,
        "scan": _scan_cases,
        "columns": _column_cases,
        "codecs": _codec_cases,
        "encode": encode_cases,
        "arrow": _arrow_cases,
        "index": _index_cases,
        "open": open_cases,
        "append": append_cases,
        "fetch": fetch_cases,
        "recover": recover_cases,
        "compact": compact_cases,
        "growth": growth_cases,
        "dump": dump_cases,
        "grep": grep_cases,
        "groups": groups_cases,
        "lazy": lazy_cases,
        "typed": typed_cases,
        "metadata": metadata_cases,
    }
    return [case for group in GROUPS if group in groups for case in makers[group]()]


def _column_cases() -> list[Case]:
    scalars = partial(_columns_case, "columns", fields="SCALARS")
    gathered = partial(_columns_case, "columns", fields="GATHERED")
    return [
        *(scalars(f"columns {label}", name, limit="read sum") for label, name in VALUES.items()),
        *(
            gathered(f"with key, value {label}", name, limit="memcpy")
            for label, name in VALUES.items()
        ),
        scalars("columns one record", ONE_RECORD),
        gathered("with key, value one record", ONE_RECORD),
        scalars("columns 1 MB batches", "v2-plain-100-1m"),
        gathered("with key, value 1 MB batches", "v2-plain-100-1m", limit="memcpy"),
        gathered("with 2 headers", "v2-plain-100-16k-h2", fields="WITH_HEADERS"),
        scalars("columns 100 B, windows", PLAIN, mode="windows"),
        gathered("with key, value 100 B, windows", PLAIN, mode="windows"),
        scalars("columns 100 B, fresh map", PLAIN, mode="fresh"),
        scalars("columns magic 1", "v1-plain-100-16k"),
        gathered("with key, value magic 1", "v1-plain-100-16k"),
        scalars("columns magic 0", "v0-plain-100-16k"),
        *(_rows_case(f"rows {label}", name) for label, name in VALUES.items()),
    ]


def _rows_case(name: str, corpus: str) -> Case:
    """Records as objects, of which a loop takes offset, timestamp, key and value."""

    def prepare(stack: ExitStack) -> Contest:
        from bench import subjects

        log = made(corpus)
        peer = partial(peers.aiokafka_rows, log.log.read_bytes())
        return Contest(subjects.rows(log.log, stack), (Versus("aiokafka", peer),), log.records)

    return Case("columns", name, "record", prepare)


def _codec_cases() -> list[Case]:
    found = []
    for codec in ("lz4", "zstd", "snappy", "gzip"):
        for fields, what in (("SCALARS", ""), ("GATHERED", " with key, value")):
            for batch, size in (("16k", "16 KB"), ("1m", "1 MB")):
                title = f"{codec}{what}, {size} batches"
                corpus = f"v2-{codec}-100-{batch}"
                limit: Limit | None = "codec alone" if fields == "SCALARS" else None
                found.append(_columns_case("codecs", title, corpus, fields=fields, limit=limit))
    by_zlib = ("gzip by zlib, 16 KB batches", "v2-gzip-100-16k")
    found.append(_columns_case("codecs", *by_zlib, fields="SCALARS", mode="zlib"))
    for name in ("v1-gzip-100-16k", "v1-lz4-100-16k", "v0-snappy-100-16k"):
        magic, codec, *_ = name.split("-")
        title = f"{codec} wrappers, magic {magic[1]}"
        found.append(_columns_case("codecs", title, name, fields="SCALARS"))
    return found


def _columns_case(
    group: str,
    name: str,
    corpus: str,
    *,
    fields: Literal["SCALARS", "GATHERED", "WITH_HEADERS"],
    mode: Literal["mapped", "windows", "fresh", "zlib"] = "mapped",
    limit: Limit | None = None,
) -> Case:
    """Columns of a corpus beside those who iterate it and, if named, beside the machine's limit."""

    def prepare(stack: ExitStack) -> Contest:
        from bench import subjects

        log = made(corpus)
        wanted = getattr(subjects, fields)
        if mode == "fresh":
            subject = subjects.columns_fresh(log.log, wanted)
        else:
            mapping: subjects.Mapping = "never" if mode == "windows" else "always"
            stack.enter_context(subjects.without_isal() if mode == "zlib" else nullcontext())
            subject = subjects.columns(log.log, wanted, stack, mapping)
        rivals = _record_peers(log, copied=fields != "SCALARS")
        if limit == "codec alone":
            inflate = peers.inflate_alone(log.log.read_bytes(), log.records)
            rivals.append(Versus(limit, inflate))
        elif limit is not None:
            mapped = peers.mapped(log.log, stack)
            sweep = peers.read_sum(mapped) if limit == "read sum" else peers.memcpy(mapped)
            rivals.append(per_record(limit, sweep, log))
        return Contest(subject, tuple(rivals), log.records)

    return Case(group, name, "record", prepare)


def _record_peers(log: datagen.Corpus, *, copied: bool) -> list[Versus]:
    data = log.log.read_bytes()
    rivals = [Versus("aiokafka", partial(peers.aiokafka_records, data, log.records))]
    if not log.name.endswith("-1m"):  # One batch of those alone would take it seconds.
        part = peers.whole_batches(data, SLOW_PEER_BYTES)
        rivals.append(Versus("kafka-python", partial(peers.kafka_python_records, part)))
    if peers.Java.there() and log.name.startswith("v2"):
        options = {"copy": True} if copied else {}
        rivals.append(java("decode", log, log.records, **options))
    return rivals


def _scan_cases() -> list[Case]:
    return [
        _verify_case("verify 16 KB batches", PLAIN),
        _verify_case("verify 1 KB values", VALUES["1 KB"]),
        _verify_case("verify 1 MB batches", "v2-plain-100-1m"),
        _verify_case("verify zstd", "v2-zstd-100-16k"),
        _verify_case("verify one record", ONE_RECORD),
        _verify_case("verify magic 1", "v1-plain-100-16k"),
        Case("scan", "verify windows", "byte", _prepare_verify_windows),
        Case("scan", "verify fresh map", "byte", _prepare_verify_fresh),
        _headers_case("headers 16 KB batches", PLAIN),
        _headers_case("headers one record", ONE_RECORD),
    ]


def _verify_case(name: str, corpus: str) -> Case:
    """A walk with CRCs beside a read of the same mapped bytes."""

    def prepare(stack: ExitStack) -> Contest:
        from bench import subjects

        log = made(corpus)
        data = log.log.read_bytes()
        rivals = [
            Versus("read sum", peers.read_sum(peers.mapped(log.log, stack))),
            Versus("aiokafka CRC", partial(peers.aiokafka_crc, data)),
        ]
        if peers.Java.there() and corpus.startswith("v2"):
            rivals.append(java("crc", log, log.file_bytes))
        return Contest(subjects.verify(log.log, stack), tuple(rivals), log.file_bytes)

    return Case("scan", name, "byte", prepare)


def _prepare_verify_windows(stack: ExitStack) -> Contest:
    from bench import subjects

    log = made(PLAIN)
    rivals = (
        Versus("windowed read sum", peers.windowed_read_sum(log.log, stack)),
        Versus("read sum", peers.read_sum(peers.mapped(log.log, stack))),
    )
    return Contest(subjects.verify(log.log, stack, "never"), rivals, log.file_bytes)


def _prepare_verify_fresh(_: ExitStack) -> Contest:
    from bench import subjects

    log = made(PLAIN)
    sweep = Versus("fresh map read sum", peers.fresh_read_sum(log.log))
    return Contest(subjects.verify_fresh(log.log), (sweep,), log.file_bytes)


def _headers_case(name: str, corpus: str) -> Case:
    def prepare(stack: ExitStack) -> Contest:
        from bench import subjects

        log = made(corpus)
        data = log.log.read_bytes()
        rivals = [Versus("aiokafka, no CRC", partial(peers.aiokafka_batches, data))]
        if peers.Java.there():
            rivals.append(java("headers", log, log.batches))
        return Contest(subjects.headers(log.log, stack), tuple(rivals), log.batches)

    return Case("scan", name, "batch", prepare)


def _crc_cases() -> list[Case]:
    sizes = {"64 B": 64, "1 KB": 1 << 10, "16 KB": 16 << 10, "1 MB": 1 << 20, "64 MB": 64 << 20}
    return [
        Case("crc", f"{name} {label}", "byte", partial(_prepare_crc, name, size))
        for name in ("CRC-32C", "CRC-32")
        for label, size in sizes.items()
    ]


def _prepare_crc(name: str, size: int, _: ExitStack) -> Contest:
    """CRCs over pieces of one size; the longest also beside a read sum."""
    from kseg import _core

    count = max(1, min(4096, (16 << 20) // size))
    data = np.random.default_rng(records.SEED).integers(0, 256, size * count, np.uint8)
    pieces = [data[at : at + size].tobytes() for at in range(0, size * count, size)]
    castagnoli = name == "CRC-32C"
    ours = _core.crc32c if castagnoli else _core.crc32
    found = peers.crc32c_calls() if castagnoli else peers.crc32_calls()
    rivals = [Versus(peer, peers.over(call, pieces)) for peer, call in found.items()]
    if count == 1:
        rivals.append(Versus("read sum", peers.read_sum(data)))
    return Contest(peers.over(ours, pieces), tuple(rivals), size * count)


def _arrow_cases() -> list[Case]:
    return [
        Case("arrow", f"Arrow table {label}", "record", partial(_prepare_arrow, name))
        for label, name in VALUES.items()
    ]


def _prepare_arrow(corpus: str, stack: ExitStack) -> Contest:
    from bench import subjects

    log = made(corpus)
    mapped = peers.mapped(log.log, stack)
    part = peers.whole_batches(log.log.read_bytes(), 8 * SLOW_PEER_BYTES)
    rivals = (
        Versus("aiokafka to pyarrow", partial(peers.aiokafka_table, part)),
        per_record("memcpy, fresh memory", peers.memcpy_fresh(mapped), log),
    )
    return Contest(subjects.arrow_table(log.log, stack), rivals, log.records)


def _index_cases() -> list[Case]:
    return [Case("index", "lookup, one", "lookup", _prepare_lookup_one)]


def _index_file() -> Path:
    path = datagen.DATA / f"v{datagen.VERSION}-index" / f"{0:020}.index"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        datagen.offset_index(path, INDEX_ENTRIES)
    return path


def _prepare_lookup_one(_: ExitStack) -> Contest:
    from bench import subjects

    path = _index_file()
    data = path.read_bytes()
    keys = np.frombuffer(data, ">i4")[::2].astype(np.int32)
    targets = np.random.default_rng(1).integers(0, int(keys[-1]), LOOKUPS).tolist()
    rivals = (
        Versus("bisect on the file", peers.bisect_file(data, targets)),
        Versus("bisect on a list", peers.bisect_list(keys.tolist(), targets)),
        Versus("NumPy, native copy", peers.searchsorted_one(keys, targets)),
    )
    return Contest(subjects.lookup_one(path, targets), rivals, len(targets))
