"""Options that verbs share which change logs; `kseg.cli.closed` does what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kseg.cli.options import NEW_PATH, WholeNumber, high_watermark_option
from kseg.constants import COMPACTION_MAP_BYTES, COMPACTION_RULES

_F = TypeVar("_F", bound=Callable[..., Any])


def apply_option(function: _F) -> _F:
    """`--apply`."""
    return click.option(
        "--apply", is_flag=True, help="Carry out the plan; without it, only print it."
    )(function)


def backup_options(function: _F) -> _F:
    """`--backup-dir` and `--no-backup`."""
    function = click.option(
        "--no-backup", is_flag=True, help="Keep no copy of what is cut, replaced or deleted."
    )(function)
    return click.option(
        "--backup-dir",
        metavar="DIR",
        type=NEW_PATH,
        help="Keep what is cut, replaced or deleted here; else beside the data directory.",
    )(function)


def backup_dir_option(function: _F) -> _F:
    """`--backup-dir` of compaction, which keeps nothing without it."""
    return click.option(
        "--backup-dir",
        metavar="DIR",
        type=NEW_PATH,
        help="Keep the old segments here; else nothing of them is kept.",
    )(function)


def compaction_options(function: _F) -> _F:
    """`--all`, `--force`, `--rules`, `--map-bytes` of `CompactionOptions`; `--high-watermark`."""
    function = high_watermark_option(
        "This is the only copy: what lies above a broker's high watermark is compacted, too."
    )(function)
    function = click.option(
        "--map-bytes",
        type=WholeNumber(min=64),
        default=COMPACTION_MAP_BYTES,
        show_default=True,
        help="Memory for keys, 24 bytes each; where it is too little there are several passes.",
    )(function)
    function = click.option(
        "--rules",
        type=click.Choice(COMPACTION_RULES),
        default=COMPACTION_RULES[-1],
        show_default=True,
        help="3.9 leaves magic 0 and 1 as they are; since 4.0 they become magic 2.",
    )(function)
    function = click.option(
        "--force", is_flag=True, help="Also what is not dirty enough, or too young."
    )(function)
    return click.option(
        "--all", "from_start", is_flag=True, help="From the log's start, clean or not."
    )(function)


def output_option(function: _F) -> _F:
    """`-o`."""
    return click.option(
        "-o",
        "--output",
        "output_dir",
        metavar="DIR",
        type=NEW_PATH,
        help="Change a copy in this directory, and leave the original alone.",
    )(function)


def change_options(function: _F) -> _F:
    """`--apply`, `-o`, `--backup-dir`, `--no-backup`, for `kseg.cli.closed.change_of`."""
    return apply_option(output_option(backup_options(function)))
