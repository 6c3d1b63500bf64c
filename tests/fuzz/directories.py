"""Whole partition directories: segments, scans, verify and the program over mutated files.

The bytes of a `directory` case are a JSON object, file name to contents in hex, so that a case is
one file like any other.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from itertools import islice
from pathlib import Path
from random import Random

import kseg
from kseg import arrow
from kseg.analysis.verify import verify
from kseg.cli.main import run as run_program
from kseg.errors import KsegError
from kseg.format.request import FIELDS
from kseg.format.values import Record
from kseg.log.log import Log
from kseg.log.segment.reader import Segment
from tests.fuzz import mutate, targets
from tests.fuzz.seeds import kind_of

INFLATED_MAX = targets.INFLATED_MAX
_EXTREMES = (0, 1, 5, 1000, 2**31, 2**62, 2**63 - 2)
_BUG = 5

Files = dict[str, bytes]


def pack(files: Files) -> bytes:
    """One case out of files."""
    return json.dumps({name: data.hex() for name, data in sorted(files.items())}).encode()


def unpack(data: bytes) -> Files:
    """The files of a case."""
    return {name: bytes.fromhex(text) for name, text in json.loads(data).items()}


def mutate_directory(data: bytes, source: Random, others: Sequence[bytes]) -> bytes:
    """Mutate one or two files as their kind asks; now and then lose, cut or exchange one."""
    files = unpack(data)
    for _ in range(source.choice((1, 1, 2))):
        name = source.choice([*files, *[name for name in files if name.endswith(".log")]])
        match source.randrange(12):
            case 0:
                if not name.endswith(".log"):
                    del files[name]
            case 1:
                files[name] = b""
            case 2:
                other = unpack(source.choice(others))
                files[name] = other.get(name, source.choice(list(other.values())))
            case _:
                change = mutate.MUTATORS.get(kind_of(name) or "", mutate.blind)
                files[name] = change(files[name], source, list(files.values()))
        if not files:
            return data
    return pack(files)


def read_directory(data: bytes, source: Random, directory: Path) -> None:
    """Write the files out as partition `orders-0` and use one or two of the public ways in."""
    partition = directory / "logs" / "orders-0"
    shutil.rmtree(partition.parent, ignore_errors=True)
    partition.mkdir(parents=True)
    for name, contents in unpack(data).items():
        (partition / name).write_bytes(contents)
    for way in source.sample(_WAYS, 2):
        with suppress(KsegError):
            way(partition, source)


def _records(path: Path, **where: object) -> tuple[list[Record], str | None]:
    found: list[Record] = []
    mapping = where.pop("mapping")
    try:
        with Segment.open(path, mapping=mapping) as segment:  # type: ignore[arg-type]
            found += segment.records(inflated_max=INFLATED_MAX, **where)
    except KsegError as error:
        return found, str(error)
    return found, None


def _segments(partition: Path, source: Random) -> None:
    """Mapped or not, the records and the error are the same; lookups keep to their contract."""
    for path in sorted(partition.glob("*.log")):
        control = source.random() < 0.5
        mapped = _records(path, mapping="always", control=control)
        assert _records(path, mapping="never", control=control) == mapped
        with Segment.open(path, mapping=source.choice(("always", "never"))) as segment:
            offsets = [record.offset for record in mapped[0][:3]]
            for offset in (*offsets, source.choice(_EXTREMES)):
                with suppress(KsegError):
                    found = segment.lookup(offset)
                    assert found is None or found.last_offset >= offset
            with suppress(KsegError):
                segment.lookup_time(source.choice((0, 1_700_000_000_000, *_EXTREMES)))
            with suppress(KsegError):
                segment.batches(verify=source.random() < 0.5)
            _ = (len(segment.txn_index), segment.offset_index, segment.time_index)


def _log(partition: Path, source: Random) -> None:
    """A log's ends and its committed records, which are some of all records."""
    with Log.open(partition, mapping=source.choice(("always", "never"))) as log:
        assert log.log_start_offset >= 0
        start = source.choice((None, 0, 3, *_EXTREMES))
        where = {"offset": (start, None), "inflated_max": INFLATED_MAX, "on_corrupt": "skip"}
        everything = set(log.records(**where))
        with suppress(KsegError):
            committed = set(log.records(isolation="read_committed", **where))
            assert committed <= everything
        for offset in (0, 3, source.choice(_EXTREMES)):
            with suppress(KsegError):
                assert log.lookup(offset).last_offset >= offset
        with suppress(KsegError):
            log.lookup_time(source.choice(_EXTREMES))
        _ = (log.log_end_offset, log.leader_epochs, log.last_stable_offset)


def _scan(partition: Path, source: Random) -> None:
    """Arrow takes what a scan gives, and finds nothing wrong with it."""
    fields = source.sample(FIELDS, source.randrange(1, len(FIELDS) + 1))
    reader = kseg.scan(
        source.choice((partition, partition.parent)),
        columns=source.choice((None, fields)),
        on_corrupt="skip",
        isolation=source.choice(("read_committed", "read_uncommitted")),
        verify_crc=source.random() < 0.5,
        max_rows=source.choice((1, 50, 65536)),
    )
    for piece in islice(reader, 20):
        targets.check_piece(piece)
        arrow.to_record_batch(piece).validate(full=True)
    reader.to_arrow().validate(full=True)
    for table in reader.batches():
        assert table.rows.shape[1] > 0


def _verify(partition: Path, source: Random) -> None:
    """A report is made whatever is found, and is JSON."""
    found = verify(source.choice((partition, partition.parent)), deep=source.random() < 0.5)
    document = json.loads(json.dumps(found.to_json()))
    assert document["ok"] == (not any(f["severity"] == "error" for f in document["findings"]))


def _reindex(partition: Path, source: Random) -> None:
    """What is rebuilt is right afterwards, and no byte of the log is another."""
    logs = {path: path.read_bytes() for path in partition.glob("*.log")}
    plan = kseg.plan_reindex(partition, exact=source.random() < 0.5)
    assert plan.apply(keep=False).files == plan.files
    assert kseg.plan_reindex(partition, exact=plan.exact).is_noop
    assert {path: path.read_bytes() for path in partition.glob("*.log")} == logs


def _program(partition: Path, source: Random) -> None:
    """The program answers with data and an exit code that is not the one for a bug."""
    place = str(source.choice((partition, *sorted(partition.iterdir()))))
    words = source.choice(
        (
            ["dump", place, "--format", source.choice(("jsonl", "csv", "text"))],
            ["dump", place, "--batches", "--format", source.choice(("jsonl", "csv", "text"))],
            ["dump", place, "--format", "jsonl", "--bytes", source.choice(("utf8", "hex"))],
            ["info", place, *source.choice(([], ["--json"]))],
            ["reindex", place, *source.choice(([], ["--json"], ["--exact"]))],
            ["verify", place, *source.choice(([], ["--json"], ["--deep"]))],
            ["read", place, "--format", "jsonl", "--limit", "50"],
            ["lookup", place, "--offset", str(source.choice(_EXTREMES))],
            ["lookup", place, "--time", str(source.choice((0, 1_700_000_000_000)))],
        )
    )
    output, complaints = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with redirect_stdout(output), redirect_stderr(complaints):
        code = run_program([*words, "--debug"])
        output.flush()
    shown = output.buffer.getvalue()  # type: ignore[attr-defined]
    assert code != _BUG, f"{words}\n{complaints.getvalue()}"
    assert b"\x1b" not in shown, words
    if "jsonl" in words or "--json" in words:
        for line in shown.splitlines():
            json.loads(line)


_WAYS: tuple[Callable[[Path, Random], None], ...] = (
    _segments,
    _log,
    _scan,
    _verify,
    _reindex,
    _program,
)
