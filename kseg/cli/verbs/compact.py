"""The options of `kseg compact`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli import change_options
from kseg.cli.options import (
    directories_argument,
    json_option,
    selection_options,
    settings_options,
)
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@directories_argument(required=True)
@selection_options
@change_options.output_option
@change_options.backup_dir_option
@change_options.apply_option
@settings_options
@change_options.compaction_options
@json_option
def compact(**given: Any) -> int:
    """Say what compaction would leave of DIR...: of each key the last record.

    Each DIR is a partition directory, a data directory with all its partitions, or a broker's
    server.properties, for the directories in its log.dirs. Compacted are topics whose
    cleanup.policy has compact: __consumer_offsets, __transaction_state, those in
    cleaner-offset-checkpoint, and those of which --config, the metadata log or --broker-config says
    so. 'kseg retain --help' has the order of these sources, and what is left alone. A run does what
    Kafka's cleaner would: from where the checkpoint says, where enough is dirty, and nothing of the
    active segment, above the high watermark or of transactions that are not decided. With
    compact,delete old segments go, too.

    Changes nothing without --apply. New segments are written beside the old ones, which then go. So
    the disk needs room for the largest new segment of each partition, as the plan says. Where there
    is too little, those that need less go first. No other disk can lend the room: a kill would
    leave records where no broker looks for them. What goes is not kept, unless you give
    --backup-dir: a disk that is full would stay so.
    """
    from kseg.cli.compact import compact as run

    return run(**given)
