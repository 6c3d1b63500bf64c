"""`kseg dump --kafka`: from the options of the command line to a run of Kafka's tool.

Source: Kafka 4.2 `DumpLogSegments.main`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain
from kseg.cli.kafka_dump.lines import (
    CURRENT,
    Lines,
    Parser,
    number_decoder,
    stored_contents,
    style_of,
)
from kseg.cli.kafka_dump.logs import LogDump, LogOptions, dump_memory
from kseg.cli.kafka_dump.options import (
    DECODER_NAMES,
    TOPIC_DECODERS,
    IndexOptions,
    refuse_own_options,
)
from kseg.cli.output import binary_stdout, taker
from kseg.errors import KsegError, NotALogError
from kseg.files.log_file import PIECE_BYTES
from kseg.workers import Kept, each_at, putting, run_in_order

if TYPE_CHECKING:
    from kseg.workers import Put, Work

#: Ends of the names of files that the tool prints.
_SUFFIXES: Final = ("log", "checkpoint", "index", "timeindex", "snapshot", "txnindex")
#: Decoders by the end of their class name, in small letters, without `Decoder`.
_DECODERS: Final[dict[str, Any]] = {
    "string": None,
    "long": number_decoder(8),
    "integer": number_decoder(4),
}


def dump(context: click.Context, /, paths: tuple[str, ...], jobs: int, **given: Any) -> int:
    """Run the tool with what the command line has; returns the exit code.

    Raises:
        UsageError: there is no path, no such decoder, or an option that the tool does not have.
    """
    refuse_own_options(context)
    out = binary_stdout()
    files = [*paths, *(given["files"] or "").split(",")]
    files = [str(file) for each in files if each for file in _files(Path(each))]
    if not files:
        raise click.UsageError('Missing required argument "[files]".')
    return KafkaDump(_logs(given, out), _indexes(given), out, jobs).run(files)


def _files(path: Path) -> list[Path]:
    """A file itself; of a directory those that the tool can print, by name.

    Raises:
        NotALogError: the directory has none.
        OSError: the directory cannot be listed.
    """
    if not path.is_dir():
        return [path]
    names = sorted(os.listdir(path))
    found = [path / name for name in names if name.rpartition(".")[2] in _SUFFIXES]
    if not found:
        raise NotALogError("a directory without logs, indexes and snapshots", path=path)
    return found


def _logs(given: dict[str, Any], out: IO[bytes]) -> LogOptions:
    parser = _parser(given)
    return LogOptions(
        style_of(terminal=out.isatty()),
        metadata=not given["skip_record_metadata"],
        deep=given["deep_iteration"] or parser is not None,
        parser=parser,
        max_bytes=given["max_bytes"],
        lines=_lines(given),
    )


def _lines(given: dict[str, Any]) -> Lines:
    """The lines of the release that is asked for.

    Raises:
        UsageError: the lines of an older release for a decoder, for contents alone, or for messages
            without deep iteration; those are not known.
    """
    if given["kafka_version"] in (None, "4.2"):
        return CURRENT
    from kseg.cli.kafka_dump.older import VERSIONS  # few scripts ask for them

    lines = VERSIONS[given["kafka_version"]]
    for name in (*TOPIC_DECODERS, "skip-record-metadata"):
        if given[name.replace("-", "_")]:
            raise click.UsageError(f"--{name} prints the lines of 4.2 only.")
    if lines.deep_only and not given["deep_iteration"]:
        raise click.UsageError("Up to --kafka-version 0.10 there are lines for --deep-iteration.")
    return lines


def _indexes(given: dict[str, Any]) -> IndexOptions:
    size = given["max_message_size"]
    return IndexOptions(
        verify_only=given["verify_index_only"],
        sanity_only=given["index_sanity_check"],
        **({} if size is None else {"max_message_size": size}),
    )


def _parser(given: dict[str, Any]) -> Parser | None:
    for name, topic in TOPIC_DECODERS.items():
        if given[name.replace("-", "_")]:
            from kseg.cli.kafka_dump.decoders import internal_contents  # loads all schemas
            from kseg.internal import InternalTopic

            return partial(internal_contents, InternalTopic(topic))
    classes = given["key_decoder_class"], given["value_decoder_class"]
    if not given["print_data_log"] and classes == (None, None):
        return None
    key, value = map(_decoder, classes)
    return partial(stored_contents, key=key, value=value) if key or value else stored_contents


def _decoder(name: str | None) -> Any:
    known = (name or "string").rpartition(".")[2].lower().removesuffix("decoder")
    if known not in _DECODERS:
        raise click.UsageError(f"No decoder {name!r}; there are {DECODER_NAMES}.")
    return _DECODERS[known]


class KafkaDump:
    """One run of the tool.

    Attributes:
        logs: what to print of logs.
        indexes: what to print of indexes.
        out: standard output.
        jobs: threads that share the work.
        found: whether something is damaged or differs.
    """

    def __init__(
        self, logs: LogOptions, indexes: IndexOptions, out: IO[bytes], jobs: int = 1
    ) -> None:
        """Start with nothing printed and nothing found."""
        self.logs = logs
        self.indexes = indexes
        self.out = out
        self.jobs = jobs
        self.found = False
        self._dumps: list[tuple[str, LogDump]] = []
        self._faults: dict[str, list[str]] = {"index": [], "timeindex": []}
        self._memory = Kept(dump_memory)

    def run(self, paths: Iterable[str]) -> Exit:
        """Print every file; at the first where Kafka's tool ends with an exception, end too.

        Raises:
            KsegError: that one, with the path.
            OSError: a file cannot be read.
        """
        try:
            run_in_order(self._pieces(paths), taker(self.out.write), threads=self.jobs)
        except KsegError:
            self.out.flush()
            raise
        self.out.flush()
        self._tell()
        return Exit.FOUND if self.found else Exit.OK

    def _pieces(self, paths: Iterable[str]) -> Iterator[Work]:
        for path in paths:
            yield from each_at(path, self._file(path))

    def _file(self, path: str) -> Iterator[Work]:
        yield putting(self._line(f"Dumping {path}"))
        _stem, dot, suffix = os.path.basename(path).rpartition(".")
        if not dot:
            raise NotALogError("a name without an extension", path=path)
        if suffix in ("log", "checkpoint"):
            yield from self._log(Path(path))
            return
        if suffix in _SUFFIXES:
            yield partial(self._other_file, Path(path), suffix)
        else:
            yield putting(partial(self._complain, f"Ignoring unknown file {path}"))

    def _line(self, text: str) -> bytes:
        shown = printable(text) if self.logs.terminal else text
        return shown.encode("utf-8", "surrogateescape") + b"\n"

    def _complain(self, line: str) -> None:
        self.out.flush()
        complain(line)

    def _log(self, path: Path) -> Iterator[Work]:
        dump = LogDump(self.logs, self._memory)
        self._dumps.append((str(path), dump))
        yield from dump.pieces(path, tile_bytes=PIECE_BYTES if self.jobs > 1 else None)

    def _other_file(self, path: Path, suffix: str, put: Put) -> None:
        """Print an index or a snapshot."""
        from kseg.cli.kafka_dump import indexes  # logs do without

        def line(text: str) -> None:
            put(self._line(text))

        if suffix == "snapshot":
            error = indexes.print_snapshot(path, line)
            if error is not None:
                self.found = True
                put(partial(self._complain, error))
        elif suffix == "txnindex":
            indexes.print_txn_index(path, line)
        else:
            is_time = suffix == "timeindex"
            print_index = indexes.print_time_index if is_time else indexes.print_offset_index
            found = print_index(path, self.indexes, put, line)
            lines = list(indexes.complaints(found, os.path.abspath(path)))
            put(partial(self._faults[suffix].extend, lines))

    def _tell(self) -> None:
        """Write the complaints of Kafka's tool, behind all lines."""
        for line in (*self._faults["index"], *self._faults["timeindex"]):
            self.found = True
            complain(line)
        for path, dump in self._dumps:
            self.found = self.found or dump.found
            for line in dump.gaps.lines(f"{self.logs.lines.gaps}{os.path.abspath(path)}"):
                complain(line)
