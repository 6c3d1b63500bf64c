"""Compaction of one log, for those who hold it: a plan first, then done.

What is compacted, and how, is told in `kseg.log.cleaner`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kseg.constants import COMPACTION_MAP_BYTES
from kseg.log.cleaner import clean as applying
from kseg.log.cleaner.clean import CompactionOptions, plan_inputs
from kseg.log.cleaner.inputs import CleanerInputs
from kseg.log.config import LogConfig
from kseg.log.sub_directories import entry_of
from kseg.log.topic_policy import RetentionRules, compaction_rules, known_topics

if TYPE_CHECKING:
    from kseg.format.times import Time
    from kseg.log.cleaner.clean import Progress
    from kseg.log.cleaner.values import CompactionPlan, CompactionReport
    from kseg.log.log import Log
    from kseg.log.reader.version import HighWatermark
    from kseg.log.recovery.backup import Backup


def plan_compaction(
    log: Log,
    *,
    config: LogConfig | RetentionRules | None = None,
    now_ms: Time | None = None,
    high_watermark: HighWatermark | None = None,
    from_start: bool = False,
    force: bool = False,
    rules: str = "4.0",
    map_bytes: int = COMPACTION_MAP_BYTES,
    measure: bool = True,
    verify_crc: bool = True,
) -> CompactionPlan:
    """Say what compaction would do to a log, open for reading or appending; nothing is changed.

    Args:
        log: the log.
        config: the settings, or what `compaction_rules` has said; the log's own if None, or none
            for a log that is open for reading.
        now_ms: the time that counts; the log's clock, or the machine's, if None.
        high_watermark: as for `Log.open`; a log that is open for appending was told then.
        from_start: compact from the log's start, not from where `cleaner-offset-checkpoint` says.
        force: also what is not dirty enough, or too young. Never what is not replicated, not
            decided, or in the active segment.
        rules: "4.0", where magic 0 and 1 becomes magic 2; "3.9", where it stays.
        map_bytes: memory for keys, 24 bytes each; where it is too little there are several passes.
        measure: look at how many bytes go, which takes as long as compaction does.
        verify_crc: refuse a log with a batch that does not match its checksum. Kafka's cleaner
            compares none, and writes what it changes with a checksum that fits.

    Raises:
        ValueError: a high watermark for a log that is open for appending, or too little memory.
        CorruptIndexError: `cleaner-offset-checkpoint`, or an index, is malformed.
        FormatError, LimitExceededError: a batch is damaged; nothing of the log can be compacted.
        UnsupportedFormatError: the log is one of Kafka 0.7.
        OSError: a file cannot be read.
    """
    if log.mode == "append" and high_watermark is not None:
        raise ValueError("a log open for appending was told its high watermark at its opening")
    known = config if isinstance(config, RetentionRules) else _rules(log, config)
    if log.mode == "append":
        inputs = CleanerInputs.of_state(log.state, known.config, now_ms)
    else:
        inputs = CleanerInputs.of_view(log.view, known.config, now_ms, high_watermark)
    inputs = replace(inputs, on_bad_crc="stop" if verify_crc else "ignore")
    options = CompactionOptions(from_start, force, rules, map_bytes, measure)
    return plan_inputs(inputs, known, options)


def _rules(log: Log, config: LogConfig | None) -> RetentionRules:
    directory = log.path.resolve()
    partition = entry_of(directory).partition
    topic = None if partition is None else partition.topic
    if config is None:
        config = log.config if log.mode == "append" else LogConfig()
    return compaction_rules(known_topics(directory.parent), topic, config)


def apply_compaction(
    log: Log,
    plan: CompactionPlan,
    *,
    backup: Backup | None = None,
    progress: Progress | None = None,
) -> CompactionReport:
    """Do what a plan says to a log that is open for appending.

    Appends and reads go on meanwhile: the log's lock is held for each swap of files alone. Nothing
    is kept of what goes, unless there is a `backup`: the old files go as soon as the new ones are
    lasting. Killed on the way, the log is as before or compacted, segment by segment.

    Args:
        log: the log.
        plan: from `plan_compaction`.
        backup: keeps the old files.
        progress: called after each segment with bytes of log that were dealt with, and in all.

    Raises:
        StalePlanError: the log is not as the plan saw it, or changed meanwhile.
        FormatError, LimitExceededError: a batch is damaged; its segment is as it was.
        KsegError: the log is open for reading only, or has failed.
        OSError: the disk refuses, or is full; the segment that was written is as it was.
    """
    return applying.apply_state(log.state, plan, backup=backup, progress=progress)


__all__ = ["apply_compaction", "plan_compaction"]
