"""From the options of the command line to a run of the tool."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from kseg.cli.kafka_dump.dispatch import SUFFIXES, KafkaDump
from kseg.cli.kafka_dump.lines import look_of
from kseg.cli.kafka_dump.logs import LogOptions
from kseg.cli.kafka_dump.options import (
    DECODER_NAMES,
    TOPIC_DECODERS,
    IndexOptions,
    refuse_own_options,
)
from kseg.cli.kafka_dump.parsers import DecoderParser, Parser, number_decoder
from kseg.cli.output import binary_stdout
from kseg.errors import NotALogError

if TYPE_CHECKING:
    from kseg.cli.kafka_dump.old_lines import OldLines

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
    found = [path / name for name in names if name.rpartition(".")[2] in SUFFIXES]
    if not found:
        raise NotALogError("a directory without logs, indexes and snapshots", path=path)
    return found


def _logs(given: dict[str, Any], out: IO[bytes]) -> LogOptions:
    parser = _parser(given)
    deep = given["deep_iteration"] or parser is not None
    return LogOptions(
        look_of(terminal=out.isatty(), metadata=not given["skip_record_metadata"]),
        deep=deep,
        parser=parser,
        max_bytes=given["max_bytes"],
        old=_old_lines(given),
    )


def _old_lines(given: dict[str, Any]) -> OldLines | None:
    """The lines of the older release that is asked for; None for those of 4.2.

    Raises:
        UsageError: what is not known of its lines is asked for: a decoder, lines of contents
            alone, or messages without deep iteration.
    """
    if given["kafka_version"] is None:
        return None
    from kseg.cli.kafka_dump.old_lines import VERSIONS, MessageLines  # few scripts ask for them

    old = VERSIONS[given["kafka_version"]]
    if old is None:
        return None
    for name in (*TOPIC_DECODERS, "skip-record-metadata"):
        if given[name.replace("-", "_")]:
            raise click.UsageError(f"--{name} prints the lines of 4.2 only.")
    if isinstance(old, MessageLines) and not given["deep_iteration"]:
        raise click.UsageError("Up to --kafka-version 0.10 there are lines for --deep-iteration.")
    return old


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
            from kseg.cli.kafka_dump.decoders import InternalParser  # loads all schemas
            from kseg.internal import InternalTopic

            return InternalParser(InternalTopic(topic))
    classes = given["key_decoder_class"], given["value_decoder_class"]
    if not given["print_data_log"] and classes == (None, None):
        return None
    return DecoderParser(*map(_decoder, classes))


def _decoder(name: str | None) -> Any:
    known = (name or "string").rpartition(".")[2].lower().removesuffix("decoder")
    if known not in _DECODERS:
        raise click.UsageError(f"No decoder {name!r}; there are {DECODER_NAMES}.")
    return _DECODERS[known]
