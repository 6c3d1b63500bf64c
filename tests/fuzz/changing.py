"""Every verb over logs that another process changes in place: `python -m tests.fuzz.changing`.

`tests.fuzz.changer` changes lengths and counts all the time and takes each change back, so that a
value read twice is seldom the same. The verbs run in turn, each for some seconds in a process of
its own. They may refuse what they read, and say so; no process may end by a signal, and none may
call its end a bug. Exit status 1 says that one did. With `--sanitized` the kernels are those that
`tests.fuzz.asan` builds, in a copy of their own.
"""

from __future__ import annotations

import argparse
import io
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import kseg
from kseg.cli.main import run as run_program
from kseg.errors import KsegError
from kseg.log.log import Log
from tests import builders
from tests.builders import GZIP, LZ4, NONE, SNAPPY, ZSTD, record
from tests.fuzz import asan, changer

COPY = asan.ROOT / "build" / "asan-changing"
NOW = 1_700_000_000_000
BUG = 5
#: Seconds that a verb has in each turn, and in which one that waits for ever is seen.
TURN_SECONDS, HANGS_SECONDS = 4.0, 120.0
_SEGMENTS, _BATCHES, _RECORDS = 3, 120, 12


# ---- the logs ------------------------------------------------------------------------------------


def _records(source: Random, count: int, *, headed: bool) -> list[builders.Record]:
    """Records of all usual shapes."""
    pairs = [(b"name", b"value"), (b"n" * 60, None), (b"", b"v" * 200)] if headed else []
    return [
        record(
            source.choice((None, b"", b"v" * source.randrange(200), b'{"a":[1,{"b":[]}]}')),
            key=source.choice((None, b"k%d" % source.randrange(20))),
            timestamp=NOW + source.randrange(1000),
            headers=tuple(source.choices(pairs, k=source.choice((0, 1, 30)))) if headed else (),
            width=source.choice((1, 1, 5)) if headed else 1,
        )
        for _ in range(count)
    ]


def _batch(source: Random, kind: str, offset: int) -> tuple[bytes, int]:
    """One batch of a log of this kind, and how many records it has."""
    if kind == "transactions" and source.random() < 0.3:
        return builders.control_batch(source.choice((0, 1)), base_offset=offset), 1
    count = source.randint(1, _RECORDS)
    given = _records(source, count, headed=kind in ("plain", "packed"))
    codec = NONE if kind in ("plain", "keyed") else source.choice((NONE, GZIP, SNAPPY, LZ4, ZSTD))
    if kind in ("older", "oldest"):
        codec = min(codec, LZ4)
        data = builders.records_of(given, magic=kind == "older", codec=codec, base_offset=offset)
    elif kind == "transactions":
        data = builders.batch(
            given, base_offset=offset, codec=codec, producer_id=1, producer_epoch=0,
            base_sequence=offset, transactional=True,
        )  # fmt: skip
    else:
        data = builders.batch(given, base_offset=offset, codec=codec)
    return data, count


def write_logs(files: Path, seed: int) -> None:
    """A data directory with logs of each kind, and one file of Kafka 0.7."""
    source = Random(seed)
    for kind in ("plain", "packed", "transactions", "keyed", "older", "oldest"):
        offset = 0
        for _ in range(_SEGMENTS):
            base, parts = offset, []
            for _ in range(_BATCHES):
                data, count = _batch(source, kind, offset)
                parts.append(data)
                offset += count
            builders.write_segment(files / f"{kind}-0", base, *parts)
    (files / "old").mkdir()
    old = [b"payload %d" % n * source.choice((0, 1)) for n in range(2000)]
    (files / "old" / "0.kafka").write_bytes(
        b"".join(builders.messages07([each], magic=n % 2) for n, each in enumerate(old))
    )
    (files / "cleaner-offset-checkpoint").write_text("0\n1\nkeyed 0 0\n")
    how = ["--apply", "--no-backup", "--config", "index.interval.bytes=512"]
    with redirect_stdout(io.StringIO()):
        run_program(["reindex", str(files), *how])


# ---- the verbs -----------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where a verb runs.

    Attributes:
        files: the logs that change.
        other: the same, in peace.
        out: a place for what it writes, empty.
    """

    files: Path
    other: Path
    out: Path


Act = Callable[[Place], int]


def verb(*words: str) -> Act:
    """A command line, where FILES, OTHER and OUT stand for the places, LOGS for the logs."""

    def act(place: Place) -> int:
        names = {"FILES": place.files, "OTHER": place.other, "OUT": place.out}
        filled = []
        for word in words:
            first, _, rest = word.partition("/")
            if word == "LOGS":
                filled += map(str, sorted(place.files.rglob("*.log")))
                continue
            filled.append(str(names[first] / rest) if first in names else word)
        return run_program([*filled, "--debug"])

    return act


def append_lines(place: Place) -> int:
    """`kseg append`, whose log changes."""
    lines = place.out.with_suffix(".jsonl")
    lines.write_bytes(b'{"value": "dmFsdWU="}\n' * 50)
    with lines.open("rb") as file:
        os.dup2(file.fileno(), 0)
    return run_program(["append", str(place.files / "plain-0")])


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    with path.open("rb") as file, ExitStack() as stack:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        view = stack.enter_context(memoryview(mapping))
        yield view


def append_mapped(place: Place) -> int:
    """Appends of bytes that change meanwhile: what is written then is sound."""
    for kind in ("plain", "packed", "transactions", "older", "oldest"):
        first = sorted((place.files / f"{kind}-0").glob("*.log"))[0]
        with (
            _mapped(first) as view,
            Log.open(place.out / f"{kind}-0", mode="append", create=True) as log,
        ):
            log.append(builders.batch([record(b"")]))  # the next one goes the quick way
            log.truncate_to(0)
            for _ in range(20):
                with suppress(KsegError):
                    log.append_as_follower(view)
                with suppress(KsegError):
                    log.append(view[: int.from_bytes(first.read_bytes()[8:12], "big") + 12])
        with Log.open(place.out / f"{kind}-0") as log:
            for _ in log.records():  # raises where a checksum is wrong
                pass
        shutil.rmtree(place.out / f"{kind}-0")
    return 0


def scan(place: Place) -> int:
    """All columns, by threads."""
    for options in ({"threads": 2}, {"decode": {"value": "json"}}, {"verify_crc": False}):
        with suppress(KsegError):
            for piece in kseg.scan(place.files, on_corrupt="skip", **options):  # type: ignore[arg-type]
                len(piece)
    return 0


def look_around(place: Place) -> int:
    """Lookups, fetches and records of a log, one by one."""
    for path in sorted(place.files.glob("*-0")):
        with suppress(KsegError), Log.open(path) as log:
            for offset in (0, 100, 700, 1500):
                for time_ms in (NOW, NOW + 500):
                    with suppress(KsegError):
                        log.lookup_time(time_ms)
                with suppress(KsegError):
                    log.lookup(offset)
                with suppress(KsegError):
                    log.fetch(offset)
            with suppress(KsegError):
                for _ in log.records(isolation="read_committed"):
                    pass
    return 0


READING: dict[str, Act] = {
    "info": verb("info", "FILES", "--segments"),
    "dump": verb("dump", "FILES"),
    "dump records": verb("dump", "FILES", "--records", "--format", "jsonl", "--bytes", "utf8"),
    "dump csv": verb("dump", "FILES", "--records", "--format", "csv", "--jobs", "1"),
    "dump kafka": verb("dump", "LOGS", "--kafka", "--print-data-log", "--deep-iteration"),
    "verify": verb("verify", "FILES", "--deep"),
    "read": verb("read", "FILES", "--isolation", "read_committed"),
    "lookup": verb("lookup", "FILES/plain-0", "--offset", "700"),
    "export": verb("export", "FILES", "-o", "OUT/e", "--on-corrupt", "skip"),
    "export csv": verb("export", "FILES", "-o", "OUT/c", "--format", "csv", "--on-corrupt", "skip"),
    "export json": verb("export", "FILES", "-o", "OUT/j", "--on-corrupt", "skip",
                        "--decode-value", "json"),
    "convert": verb("convert", "FILES/plain-0", "-o", "OUT/v", "--codec", "lz4",
                    "--on-corrupt", "skip"),
    "convert older": verb("convert", "FILES/older-0", "-o", "OUT/v", "--on-corrupt", "skip"),
    "convert 0.7": verb("convert", "FILES/old/0.kafka", "-o", "OUT/v.log", "--on-corrupt", "skip"),
    "dump 0.7": verb("dump", "FILES/old/0.kafka", "--records"),
    "doctor": verb("doctor", "FILES"),
    "explain": verb("explain", "FILES", "--segments"),
    "diff": verb("diff", "FILES", "OTHER", "--records"),
    "merge": verb("merge", "FILES", "OTHER", "-o", "OUT/m"),
    "salvage": verb("salvage", "FILES", "-o", "OUT/s"),
    "stats": verb("stats", "FILES"),
    "scan": scan,
    "look around": look_around,
    "append of changing bytes": append_mapped,
}  # fmt: skip
WRITING: dict[str, Act] = {
    "recover": verb("recover", "FILES", "--unclean", "--apply", "--no-backup"),
    "recover as broker": verb("recover", "FILES", "--as-broker"),
    "reindex": verb("reindex", "FILES", "--apply", "--no-backup"),
    "truncate": verb("truncate", "FILES/plain-0", "--to", "1000", "--apply", "--no-backup"),
    "retain": verb("retain", "FILES", "--apply", "--config", "retention.bytes=200000"),
    "compact": verb("compact", "FILES/keyed-0", "--apply", "--config", "cleanup.policy=compact",
                    "--force", "--high-watermark", "end"),
    "append": append_lines,
}  # fmt: skip


# ---- turns ---------------------------------------------------------------------------------------


def take_turn(name: str, root: Path, seconds: float) -> int:
    """Run one verb again and again, in a process of its own; the exits are counted."""
    act, writes = {**READING, **WRITING}[name], name in WRITING
    place = Place(root / "files", root / "other", root / "out")
    counted: Counter[int] = Counter()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        shutil.rmtree(place.out, ignore_errors=True)
        for left in root.glob("out.*"):
            shutil.rmtree(left, ignore_errors=True)
        place.out.mkdir(exist_ok=True)
        if writes:
            shutil.copytree(place.other, place.files, dirs_exist_ok=True)
        counted[act(place)] += 1
        if counted[BUG]:
            break
    if not counted[BUG] and not (counted[0] or counted[1]):
        print("it never ran", file=sys.stderr)
        return 1
    print({int(code): runs for code, runs in counted.items()}, file=sys.stderr)
    return BUG if counted[BUG] else 0


class Harness:
    """Logs, the process that changes them, and the verbs that read them."""

    def __init__(self, root: Path, seed: int, *, sanitized: bool) -> None:
        """Write the logs and begin to change them."""
        self.root, self.seed = root, seed
        self._python = {"cwd": COPY, "env": asan.sanitized() | {"PYTHONPATH": str(COPY)}}
        if not sanitized:
            self._python = {"cwd": asan.ROOT, "env": dict(os.environ)}
        write_logs(root / "other", seed)
        shutil.copytree(root / "other", root / "files")
        changer.write_places(root / "files", root / "places")
        self._changer: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Harness:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process that changes files."""
        if self._changer is not None:
            self._changer.kill()
            self._changer.wait()

    def _go_on_changing(self) -> None:
        """One that changed a file while a verb cut it has ended by SIGBUS: begin another."""
        if self._changer is None or self._changer.poll() is not None:
            command = [sys.executable, "-m", "tests.fuzz.changer"]
            where = [str(self.root / "files"), str(self.root / "places"), str(self.seed)]
            self._changer = subprocess.Popen([*command, *where], cwd=asan.ROOT)

    def turn(self, name: str, seconds: float) -> bool:
        """Let one verb run over files that change; whether all was well."""
        shutil.rmtree(self.root / "files")
        shutil.copytree(self.root / "other", self.root / "files")
        self._go_on_changing()
        command = [sys.executable, "-m", "tests.fuzz.changing", "--turn", name]
        command += ["--root", str(self.root), "--seconds", str(seconds)]
        run = subprocess.Popen([*command], stderr=subprocess.PIPE, text=True, **self._python)  # type: ignore[call-overload]
        end = time.monotonic() + seconds + HANGS_SECONDS
        while run.poll() is None and time.monotonic() < end:
            with suppress(subprocess.TimeoutExpired):
                run.communicate(timeout=1)
            self._go_on_changing()
        if run.poll() is None:
            run.kill()
        said = (run.communicate()[1] or "").splitlines()
        print(f"{name}: {run.returncode or 'well'} {said[-1:]}", flush=True)
        if run.returncode:
            print(*said[-60:], sep="\n", flush=True)
        return run.returncode == 0


def search(root: Path, names: Sequence[str], seconds: float, seed: int = 1, *,
           sanitized: bool = False, turn_seconds: float = TURN_SECONDS) -> list[str]:  # fmt: skip
    """These verbs in turn for so long, each once at the least; those that failed."""
    failed, done, end = [], 0, time.monotonic() + seconds
    with Harness(root, seed, sanitized=sanitized) as harness:
        while done < len(names) or time.monotonic() < end:
            name = names[done % len(names)]
            if not harness.turn(name, turn_seconds):
                failed.append(name)
            done += 1
    return failed


def main() -> int:
    """Build the sanitized kernels if they are asked for, and search."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=[*READING, *WRITING])
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        return take_turn(options.turn, options.root, options.seconds)
    if options.sanitized:
        asan.copy_tree(COPY)
        asan.build(COPY)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as root:
        names, how = options.only or [*READING, *WRITING], {"sanitized": options.sanitized}
        failed = search(Path(root), names, options.seconds, options.seed, **how)
    print("ended by a signal, or called a bug:", failed or "none")
    return int(bool(failed))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
