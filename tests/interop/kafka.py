"""Kafka's own classes, asked over a pipe: `Kafka("3.9.1").ask([{"op": "parse", "data": b"..."}])`.

3.9.1 is the last line that writes magic 0 and 1 and converts downwards; `RELEASE` tells what
changed; 0.10.1.1 is what `kseg.legacy.old_brokers` does again. The environment variable KSEG_KAFKA
names another release than 4.2.0: 4.4.0, whose classes have moved. The jars come through Maven, from
the repositories that the machine's settings name; the driver in `tests/interop/java` is compiled
against them. Both are kept in `build/interop`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from kseg.constants import COMPACTION_RULES

JAVA = Path(__file__).parent / "java"
BUILT = Path(__file__).parents[2] / "build" / "interop"
#: The release beside which kseg's logs and brokers are asked.
RELEASE = os.environ.get("KSEG_KAFKA", "4.2.0")
RELEASES = ("3.9.1", RELEASE, "0.10.1.1")
#: What stands in the sources of drivers -> what stands there since a release.
_MOVED = {
    "4.3": {
        r"common\.record\.(?!TimestampType)([A-Z*])": r"common.record.internal.\1",
        r"isStrayKraftReplica\(\s*(.*), image\.topics\(\), ": (
            r"isStrayReplica(replicas(image, opened.log), \1, "
        ),
    },
    "4.4": {
        r"common\.record\.internal\.RecordValidationStats": (
            "storage.internals.log.RecordValidationStats"
        ),
        r"common\.utils\.(BufferSupplier|ByteBufferOutputStream|ByteUtils|CloseableIterator|Crc32C"
        r"|Exit|PrimitiveRef)\b": r"common.utils.internals.\1",
        r"storage\.internals\.log\.AbortedTxn": "common.message.AbortedTxn",
        r"\bkafka\.tools\.DumpLogSegments": "org.apache.kafka.tools.DumpLogSegments",
        r"\bcloseHandlers\b": "closeQuietly",
        # What LogManager does before it closes a log; until 4.2 the log did it itself.
        r"\blog\.close\(\)": "log.prepareActiveSegmentForClose(); log.close()",
    },
}
_BUILD_SECONDS_MAX = 200

Request = dict[str, Any]
Answer = dict[str, Any]


class UnavailableError(Exception):
    """Kafka's classes cannot be had here; the text says what is missing."""


@contextmanager
def needed() -> Iterator[None]:
    """Skip a test where Kafka's classes are not to be had; never where CI is set."""
    try:
        yield
    except UnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"Kafka's classes are not to be had: {error}")


def prepare(release: str, driver: str | None = None) -> str:
    """Jars and compiled driver of a release, as a class path.

    Args:
        release: of Kafka.
        driver: the folder of its sources; by the release if None.

    Raises:
        UnavailableError: no Maven, no Java compiler, or Maven could not bring the jars.
    """
    missing = [tool for tool in ("mvn", "javac", "java") if shutil.which(tool) is None]
    if missing:
        raise UnavailableError(f"not on PATH: {', '.join(missing)} (apt-get install maven)")
    era = "old" if release.startswith("0.") else "current"
    folder = JAVA / (driver or era)
    own = (folder / "pom.xml").exists() and folder.name != era
    pom = (folder if own else JAVA / era) / "pom.xml"
    sources = [JAVA / "Pipe.java", *sorted(folder.glob("*.java"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, pom]))
    wanted = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    jars = BUILT / release / (f"jars-{folder.name}-{wanted}" if own else "jars")
    classes = BUILT / release / f"classes-{digest.hexdigest()[:12]}"
    if not jars.exists():  # other processes may bring them, too: each has a folder of its own
        unfinished = jars.with_name(f"{jars.name}.{os.getpid()}")
        _run(
            *("mvn", "--batch-mode", "--quiet", "--file", str(pom)),
            *(f"-Dkafka.version={release}", "dependency:copy-dependencies"),
            *("-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"),
        )
        _move(unfinished, jars)
    if not classes.exists():
        unfinished = classes.with_name(f"{classes.name}.{os.getpid()}")
        moved = {} if era == "old" else _moved_until(release)
        sources = [_renamed(path, moved, unfinished) for path in sources] if moved else sources
        options = ("--release", "17", "-cp", f"{jars}/*", "-d", str(unfinished))
        _run("javac", *options, *map(str, sources))
        _move(unfinished, classes)
    return f"{classes}{os.pathsep}{jars}/*"


def _move(unfinished: Path, folder: Path) -> None:
    """Give a folder its name, unless another process was first."""
    try:
        unfinished.rename(folder)
    except OSError:
        if not folder.exists():
            raise


def is_since(release: str, first: str) -> bool:
    """Whether a release is not older than another."""
    ours, other = (tuple(map(int, name.split(".")[:2])) for name in (release, first))
    return ours >= other


def rules_of(release: str) -> str:
    """The rules of a release's cleaner, out of `kseg.constants.COMPACTION_RULES`."""
    return next(rules for rules in reversed(COMPACTION_RULES) if is_since(release, rules))


def _moved_until(release: str) -> dict[str, str]:
    names = (moved for since, moved in _MOVED.items() if is_since(release, since))
    return dict(chain.from_iterable(moved.items() for moved in names))


def _renamed(path: Path, moved: dict[str, str], folder: Path) -> Path:
    """A copy of a driver's source with the names of a release."""
    text = path.read_text()
    for name, new in moved.items():
        text = re.sub(name, new, text)
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / path.name
    copy.write_text(text)
    return copy


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_BUILD_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(str(error)) from None
    if done.returncode:
        said = f"{done.stdout}\n{done.stderr}".strip()[-2000:]
        raise UnavailableError(f"{command[0]} failed with status {done.returncode}:\n{said}")


#: A JVM that lives for seconds only is done sooner with these.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class Kafka:
    """One process with the classes of one release."""

    def __init__(
        self,
        release: str = "3.9.1",
        driver: str | None = None,
        options: Sequence[str] = ("-Xmx512m", *QUICK),
    ) -> None:
        """Build what is not there yet, and start.

        Args:
            release: see `prepare`.
            driver: see `prepare`.
            options: of the JVM.

        Raises:
            UnavailableError: see `prepare`.
        """
        self.release = release
        self._process = subprocess.Popen(
            ["java", *options, "-cp", prepare(release, driver), "Driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, requests: list[Request]) -> list[Answer]:
        """One answer for each request; bytes in both, as base64 in answers (see `unbase64`)."""
        if not requests:
            return []
        pipe = self._process
        assert pipe.stdin is not None
        assert pipe.stdout is not None
        pipe.stdin.write(json.dumps(requests, default=_base64).encode() + b"\n")
        pipe.stdin.flush()
        line = pipe.stdout.readline()
        if not line:
            raise RuntimeError(f"Kafka {self.release} died with status {pipe.wait(10)}")
        answers: list[Answer] = json.loads(line)
        return answers

    def close(self) -> None:
        """End the process."""
        pipe = self._process
        for stream in (pipe.stdin, pipe.stdout):
            if stream is not None:
                stream.close()
        try:
            pipe.wait(20)
        except subprocess.TimeoutExpired:
            pipe.kill()
            pipe.wait()

    def __enter__(self) -> Kafka:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _base64(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} is no part of a request")
    return base64.b64encode(value).decode()


def unbase64(text: str | None) -> bytes | None:
    """Bytes out of an answer; None for null."""
    return None if text is None else base64.b64decode(text)
