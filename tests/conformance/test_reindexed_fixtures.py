"""Indexes and snapshots of directories that real brokers left: healthy, killed and damaged.

What a broker of any release wrote is true and stays as it is; what was damaged since is right again
afterwards, as verify sees it, and the logs have not changed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.analysis.verify import verify
from kseg.files.names import list_partition
from kseg.log.recovery.reindex import plan_reindex
from tests.conformance.test_verify_fixtures import described, errors, partitions

#: What `kseg reindex` answers for, by the first words of verify's codes.
DERIVED = ("index-", "time-index-", "txn-index-", "snapshot-crc", "snapshot-format")
#: What differs all the same.
EXPLAINED = {
    "compact-empty-batch": "cleaners until 1.1 gave no time to a batch whose records are gone",
}


def test_what_brokers_wrote_stays(fixture_case: Path) -> None:
    if "damage" in described(fixture_case) or fixture_case.name.endswith("malformed"):
        return
    for place in partitions(fixture_case):
        plan = plan_reindex(place.path)
        assert plan.findings == ()
        # A killed broker leaves room in the indexes of the last segment, and old ones made fewer
        # kinds of files.
        last = list_partition(place.path).segments[-1].base_offset
        replaced = [file for file in plan.files if file.action != "create"]
        if place.topic not in EXPLAINED:
            assert {file.why for file in replaced} <= {"is longer than its log can need"}
            names = {file.path.name for file in replaced}
            assert all(name.startswith(f"{last:020d}") for name in names)
        assert {file.why for file in plan.files if file.action == "create"} <= {"missing"}


@pytest.mark.one_case_in(2)
def test_what_was_damaged_is_right_again(fixture_case: Path, tmp_path: Path) -> None:
    if "damage" not in described(fixture_case):
        return
    for number, place in enumerate(partitions(fixture_case)):
        partition = tmp_path / f"data-{number}" / place.path.name
        shutil.copytree(place.path, partition)
        logs = {path: path.read_bytes() for path in partition.glob("*.log")}
        plan = plan_reindex(partition)
        report = plan.apply(keep=False)
        assert report.files == plan.files
        assert plan_reindex(partition).is_noop
        assert {path: path.read_bytes() for path in partition.glob("*.log")} == logs
        damaged = {str(fault.path.with_suffix("")) for fault in plan.findings}
        left = [
            finding
            for finding in errors(verify(partition))
            if finding.code.startswith(DERIVED) and not finding.path.startswith(tuple(damaged))
        ]
        assert not damaged or place.topic != "dmg-garbled-index"
        # Behind damage nobody knows what producers did.
        assert [f for f in left if not (damaged and "index-" not in f.code)] == []
