"""The options of Kafka's dump tool, under its names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from kseg.cli.options import WholeNumber, flag
from kseg.constants import INT32_MAX
from kseg.internal.releases import DUMP_RELEASE, DUMP_RELEASES

_F = TypeVar("_F", bound=Callable[..., Any])

_COUNT: Final = WholeNumber(min=0, max=INT32_MAX)
DECODER_NAMES: Final = "string, long or integer, or the name of Kafka's class for it"
#: The decoders of internal topics in the order in which they count.
TOPIC_DECODERS: Final = {
    "offsets-decoder": "__consumer_offsets",
    "transaction-log-decoder": "__transaction_state",
    "cluster-metadata-decoder": "__cluster_metadata",
    "remote-log-metadata-decoder": "__remote_log_metadata",
    "share-group-state-decoder": "__share_group_state",
}
#: Parameters of the verb that do not go with `--kafka`.
_OWN: Final = (
    "form",
    "batches",
    "encoding",
    "topics",
    "partitions",
    "offset",
    "time",
    "key",
    "limit",
    "last",
    "mapping",
    "decode_as",
    "raw",
)
_FLAGS: Final = {
    "kafka": "Print the lines of Kafka's dump tool (kafka-dump-log), byte for byte.",
    "deep-iteration": "With --kafka: print records, not only batches.",
    "print-data-log": "With --kafka: print keys and payloads too.",
    "skip-record-metadata": "With --kafka: of records print only key and payload.",
    "verify-index-only": "With --kafka: compare indexes with their logs, and print no entries.",
    "index-sanity-check": "With --kafka: of each index say only whether it passes.",
    **{
        name: f"With --kafka: print records of {topic} decoded."
        for name, topic in TOPIC_DECODERS.items()
    },
}


def kafka_options(function: _F) -> _F:
    """`--kafka`, and Kafka's own options, which go with it only."""
    for option in reversed(_valued()):
        function = option(function)
    for name, text in reversed(_FLAGS.items()):
        function = flag(f"--{name}", help_text=text)(function)
    return function


def _valued() -> list[Callable[[_F], _F]]:
    return [
        click.option(
            "--kafka-version",
            type=click.Choice(DUMP_RELEASES),
            default=None,
            help=f"With --kafka: the lines of this release's tool; {DUMP_RELEASE} by default.",
        ),
        click.option(
            "--files", metavar="A,B...", help="With --kafka: the PATHs, as Kafka's tool has them."
        ),
        click.option(
            "--max-bytes", type=_COUNT, metavar="N", help="With --kafka: bytes read of each log."
        ),
        click.option(
            "--max-message-size",
            type=_COUNT,
            metavar="N",
            help="With --kafka: an option of Kafka's tool; batches of any size are compared.",
        ),
        click.option("--key-decoder-class", metavar="NAME", help=f"With --kafka: {DECODER_NAMES}."),
        click.option("--value-decoder-class", metavar="NAME", help="With --kafka: likewise."),
    ]


def refuse_kafka_options(words: dict[str, Any]) -> None:
    """Refuse Kafka's options without `--kafka`.

    Raises:
        UsageError: names the first one.
    """
    for name, value in words.items():
        if value not in (None, False):
            raise click.UsageError(f"--{name.replace('_', '-')} needs --kafka.")


def refuse_own_options(context: click.Context) -> None:
    """Refuse the options of `kseg dump` that `--kafka` does not have.

    Raises:
        UsageError: names the first one.
    """
    for name in _OWN:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(
                parameter for parameter in context.command.params if parameter.name == name
            )
            raise click.UsageError(f"{option.opts[0]} cannot be used with --kafka.")
