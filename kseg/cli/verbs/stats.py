"""The options of `kseg stats`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import (
    jobs_option,
    json_option,
    paths_argument,
    selection_options,
    settings_options,
    stats_options,
)
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@paths_argument
@stats_options
@click.option(
    "--compaction",
    "with_compaction",
    is_flag=True,
    help="Also what a compaction would save of each partition, as 'kseg compact' plans it.",
)
@settings_options
@jobs_option
@selection_options
@json_option
def stats(**given: Any) -> int:
    """Count what fills the disk: batches, records, sizes, times, codecs and top keys.

    Sizes of records are those of key and value before compression. Quantiles are at most a
    sixteenth too large, numbers of different keys are within about 2 %, and the bytes of a top key
    are exact unless an error is shown. Counts are of the files: an offset that two segments hold
    counts twice.

    --config, --broker-config, --metadata-dir and --now are for --compaction, and mean there what
    they mean for 'kseg compact'. Partitions that have no compacted topic are left alone, and the
    reason is told.
    """
    from kseg.cli.stats import stats as run

    return run(**given)
