"""`diff`: copies of partitions against each other."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING

from kseg.analysis.diff.partitions import examine, plan
from kseg.analysis.diff.values import Diff, PartitionDiff
from kseg.analysis.units_run import Jobs, Progress, run_units

if TYPE_CHECKING:
    from kseg.files.mapping import Mapping
    from kseg.log.copies import Chosen


def diff(
    *copies: str | PathLike[str],
    records: bool = False,
    chosen: Chosen | None = None,
    mapping: Mapping = "auto",
    jobs: Jobs = 1,
    progress: Progress | None = None,
) -> Diff:
    """Compare copies of a partition, or of whole data directories, with the first one.

    Batches are the same if their offsets, checksums and headers are. Where segments are cut, where
    a log starts, and what its indexes say is no difference. Nothing is changed, and nothing is
    locked: a copy that is being written is compared up to what was there.

    Args:
        copies: partition directories, copies of one partition whatever their names; or data
            directories, whose partitions are joined by topic, number and topic id. The data
            directories of one broker are one copy, with commas between them as in `log.dirs`.
        records: where batches differ, compare their records, as for copies that were compacted
            apart or hold other codecs.
        chosen: leaves out partitions of data directories, by topic and number.
        mapping: see `kseg.files.mapping`.
        jobs: processes to share the work.
        progress: called with bytes of log done and bytes in all.

    Raises:
        ValueError: fewer than two copies, the same directory twice, or `jobs` below 1.
        NotALogError: a path is nothing of Kafka's, or a file; or nothing is chosen.
        OSError: a path is missing, or cannot be listed.

    Example:
        >>> from kseg import diff
        >>> diff("data/orders-0", "backup/orders-0").ok  # doctest: +SKIP
        True
    """
    units = plan(copies, records=records, mapping=mapping, chosen=chosen)
    return report(run_units(units, examine, jobs=jobs, progress=progress))


def report(found: Iterable[PartitionDiff]) -> Diff:
    """Join what was found of each partition, in any order."""
    return Diff(tuple(sorted(found, key=lambda one: (one.topic or "", one.partition or 0))))


__all__ = ["diff", "report"]
