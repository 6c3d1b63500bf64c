"""The doctor: what is wrong with a broker's data directories, what follows, and what mends it."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kseg.analysis.doctor import CODES, BrokerFinding, DoctorReport, Outcome, answer, doctor
from kseg.analysis.doctor.values import PartitionOutlook
from kseg.analysis.verify import verify
from kseg.cli.main import run
from kseg.files.metadata import remove_clean_shutdown, write_clean_shutdown
from tests.builders import batch, record
from tests.terminal import type_line
from tests.unit.analysis import healthy
from tests.unit.analysis.breaks import grow, patch
from tests.unit.analysis.healthy import (
    FIRST,
    LAST,
    LAST_BATCHES,
    Data,
    snapshot,
    starts,
    time_index,
)
from tests.unit.files.foreign import holding
from tests.unit.log.settings import made

AT = starts(LAST_BATCHES)
STARTS, OFFLINE, FAILS = Outcome.STARTS, Outcome.OFFLINE, Outcome.FAILS
DIRECTORY_ID = "directory.id=wX9JIH7VHVQzeEc98wsAbg\n"


@pytest.fixture
def data(tmp_path: Path) -> Data:
    """A data directory that was shut down cleanly, with one partition."""
    data = healthy.make(tmp_path / "data")
    data.file(11, ".snapshot").write_bytes(snapshot((7, 0, -1, -1, 0, 1003, 0, -1)))
    for suffix, room in ((".index", 32), (".timeindex", 48)):
        index = data.file(LAST, suffix)
        os.truncate(index, index.stat().st_size - room)
    write_clean_shutdown(data.root)
    # Without a metadata log it is one of ZooKeeper's era.
    (data.root / "meta.properties").write_text("version=0\ncluster.id=c\nbroker.id=1\n")
    return data


class Harm(NamedTuple):
    """A change of the directory, and the finding: its code, its outcome, Kafka's exception."""

    do: Callable[[Data], object]
    code: str
    outcome: Outcome = STARTS
    exception: str | None = None
    ok: bool = False


def unclean(data: Data) -> None:
    (data.root / ".kafka_cleanshutdown").unlink()


def torn(data: Data) -> None:
    grow(data.file(LAST), LAST_BATCHES[0][:70])


def flipped(data: Data) -> None:
    patch(data.file(LAST), AT[1] - 3, b"?")
    unclean(data)


def zeros(data: Data) -> None:
    grow(data.file(LAST), bytes(400))


def with_unclean(do: Callable[[Data], object]) -> Callable[[Data], object]:
    return lambda data: (do(data), unclean(data))


def write(name: str, text: str) -> Callable[[Data], object]:
    return lambda data: (data.root / name).write_text(text)


def in_partition(name: str, text: str) -> Callable[[Data], object]:
    return lambda data: (data.partition / name).write_text(text)


def gone(data: Data, base_offset: int) -> None:
    """A segment is lost, without its snapshot."""
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        data.file(base_offset, suffix).unlink(missing_ok=True)


def gap(data: Data) -> None:
    """A segment between others is lost, of a topic that no cleaner knows: offsets 11 to 19."""
    (data.root / "cleaner-offset-checkpoint").unlink()
    data.write_log(20, batch([record(b"v", timestamp=1010)], base_offset=20, leader_epoch=1))
    data.write_log(LAST, *LAST_BATCHES)
    data.file(20, ".timeindex").write_bytes(time_index((1010, 20), base_offset=20))
    data.file(LAST, ".timeindex").write_bytes(time_index((1009, 10), base_offset=7))


def folder(name: str) -> Callable[[Data], object]:
    return lambda data: (data.root / name).mkdir()


def metadata_is_offline(data: Data) -> None:
    (data.root / "__cluster_metadata-0").mkdir()
    (data.root / "meta.properties").write_text("version=9\n")


def quorum_state(text: str) -> Callable[[Data], object]:
    def do(data: Data) -> None:
        (data.root / "__cluster_metadata-0").mkdir()
        (data.root / "__cluster_metadata-0" / "quorum-state").write_text(text)

    return do


_U = "0123456789abcdef" * 2
_STORAGE, _ARGUMENT = "KafkaStorageException", "IllegalArgumentException"
_NUMBER, _NULL = "NumberFormatException", "NullPointerException"
_EPOCHS, _TOPIC_ID = "leader-epoch-checkpoint", "partition.metadata"
#: A file of the partition, its text, and how the load ends.
LOADS = {
    "epochs: no count": (_EPOCHS, "0\nx\n", OFFLINE, _STORAGE),
    "epochs: no number": (_EPOCHS, "0\n1\na 0\n", FAILS, _NUMBER),
    "epochs: a negative one": (_EPOCHS, "0\n1\n-1 0\n", FAILS, _ARGUMENT),
    "a log of no number": ("abc.log", "", FAILS, _NUMBER),
    "topic id: an empty file": (_TOPIC_ID, "", FAILS, _NULL),
    "topic id: no id": (_TOPIC_ID, "version: 0\ntopic_id: ?", FAILS, _ARGUMENT),
    "topic id: no version": (
        *(_TOPIC_ID, "version: x\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA"),
        *(OFFLINE, _STORAGE),
    ),
    "topic id: one other line": (_TOPIC_ID, "foo\n", OFFLINE, _STORAGE),
    "topic id: one line": (_TOPIC_ID, "version: 0\n", FAILS, _NULL),
}
#: A file of the data directory, its text, and the finding.
FILES = {
    "no ids": ("meta.properties", "", "meta-properties", FAILS, "RuntimeException"),
    "ids of the other version": (
        *("meta.properties", "version=0\ncluster.id=c\nnode.id=1\n"),
        *("meta-properties", FAILS, "RuntimeException"),
    ),
    "bad meta.properties": (
        *("meta.properties", "version=9\n"),
        *("meta-properties", OFFLINE, "IOException"),
    ),
    "checkpoint: no count": (
        *("recovery-point-offset-checkpoint", "0\nx\n"),
        *("checkpoint-format", OFFLINE, _STORAGE),
    ),
    "checkpoint: no number": (
        *("recovery-point-offset-checkpoint", "0\n1\norders 0 x\n"),
        *("checkpoint-format", STARTS, _NUMBER),
    ),
    "checkpoint: high watermarks": (
        *("replication-offset-checkpoint", "0\n1\norders 0 x\n"),
        *("checkpoint-format", Outcome.UNKNOWN, _NUMBER),
    ),
}
HARMS = {
    "no mark": Harm(unclean, "unclean", ok=True),
    "read again": Harm(unclean, "swept", ok=True),
    "torn": Harm(with_unclean(torn), "records-cut"),
    "flipped": Harm(flipped, "records-cut"),
    "zeros": Harm(with_unclean(zeros), "bytes-cut", ok=True),
    "torn behind a clean stop": Harm(torn, "hidden"),
    "room in an index behind a clean stop": Harm(
        lambda data: grow(data.file(LAST, ".timeindex"), bytes(48)), "index-unused"
    ),
    "zeros behind a clean stop": Harm(zeros, "load-fails", FAILS, "CorruptRecordException"),
    "a negative log": Harm(
        with_unclean(in_partition("-5.log", "")), "not-imitated", Outcome.UNKNOWN
    ),
    # A flipped byte at the cut makes a message of magic 1 there, compressed by its codec.
    "an old magic": Harm(
        with_unclean(lambda data: patch(data.file(LAST), 16, b"\x01\x01")),
        *("not-imitated", Outcome.UNKNOWN),
    ),
    "an old magic at a clean end": Harm(
        lambda data: patch(data.file(LAST), AT[-2] + 16, b"\x01\x01"),
        *("not-imitated", Outcome.UNKNOWN),
    ),
    **{
        f"quorum state: {how}": Harm(quorum_state(text), "quorum-state", FAILS, exception)
        for how, text, exception in (
            ("empty", "", "UncheckedIOException"),
            ("a bracket", "{", "UncheckedIOException"),
            ("no object", "7", "UncheckedIOException"),
            ("no version", "{}", "UncheckedIOException"),
            ("of later releases", '{"data_version": 9}', "IllegalStateException"),
            ("no leader", '{"data_version": 1, "leaderEpoch": 1}', "RuntimeException"),
        )
    },
    "lost+found": Harm(folder("lost+found"), "foreign-directory", FAILS, "KafkaException"),
    **{
        f"a {kind} one": Harm(folder(f"orders-1.{_U}-{kind}"), "set-aside", ok=True)
        for kind in ("delete", "stray", "future")
    },
    "a folder with a partition's name and a strange file": Harm(
        lambda data: (
            folder("orders-9")(data),
            write("orders-9/notes.txt", "")(data),
            unclean(data),
        ),
        *("unclean",),
        ok=True,
    ),
    "no last segment": Harm(lambda data: gone(data, LAST), "records-missing"),
    "no last segment, and no checkpoint says so": Harm(
        lambda data: (
            gone(data, LAST),
            data.write_checkpoint("recovery-point-offset-checkpoint", 7),
            (data.root / "recovery-point-offset-checkpoint").unlink(),
            (data.root / "replication-offset-checkpoint").unlink(),
        ),
        "records-missing",
    ),
    "no segment at all": Harm(
        lambda data: (
            write("log-start-offset-checkpoint", "0\n0\n")(data),
            *(path.unlink() for path in data.partition.glob("0*")),
        ),
        "records-missing",
    ),
    "no first segment": Harm(
        lambda data: (write("log-start-offset-checkpoint", "0\n0\n")(data), gone(data, FIRST)),
        "records-missing",
    ),
    "no segment in the middle": Harm(gap, "records-missing"),
    "no checkpoint of log starts": Harm(
        lambda data: (
            write("meta.properties", "version=1\ncluster.id=c\nnode.id=1\n")(data),
            (data.root / "log-start-offset-checkpoint").unlink(),
        ),
        "checkpoint-missing",
    ),
    "an empty checkpoint of log starts": Harm(
        lambda data: (
            write("meta.properties", "version=1\ncluster.id=c\nnode.id=1\n")(data),
            write("log-start-offset-checkpoint", "")(data),
        ),
        "checkpoint-missing",
    ),
    "a snapshot of no number": Harm(
        in_partition("x.snapshot", ""), "load-fails", FAILS, "NumberFormatException"
    ),
    "a snapshot without a name": Harm(
        in_partition(".snapshot", ""), "load-fails", FAILS, "NumberFormatException"
    ),
    "no meta.properties": Harm(
        lambda data: (
            (data.root / "meta.properties").unlink(),
            (data.root / "__cluster_metadata-0").mkdir(),
        ),
        *("not-formatted", FAILS, "RuntimeException"),
    ),
    "the metadata directory is offline": Harm(
        metadata_is_offline, "metadata-offline", FAILS, "RuntimeException"
    ),
    "a log start beyond the log": Harm(
        lambda data: data.write_checkpoint("log-start-offset-checkpoint", 999), "log-start-ahead"
    ),
    "checkpoint: of what is gone": Harm(
        write("replication-offset-checkpoint", "0\n1\npayments 0 5\n"),
        "checkpoint-entry",
        ok=True,
    ),
    **{
        name: Harm(in_partition(file, text), "load-fails", *found)
        for name, (file, text, *found) in LOADS.items()
    },
    **{name: Harm(write(file, text), *found) for name, (file, text, *found) in FILES.items()},
}


STRAYS = "a start renames it to -stray, keeps it and does not serve it"


def only(found: DoctorReport, code: str) -> BrokerFinding:
    return next(one for one in found.all_findings() if one.code == code)


def mends(one: BrokerFinding) -> None:
    """Run what the last line of its advice says."""
    assert one.mend is not None
    type_line(one.mend.splitlines()[-1])


def partition_of(found: DoctorReport) -> PartitionOutlook:
    return found.directories[0].partitions[0]


def test_a_sound_directory_starts_and_nothing_is_said(data: Data) -> None:
    found = doctor(data.root)
    assert (found.ok, found.outcome) == (True, STARTS)
    assert list(found.all_findings()) == []
    (directory,) = found.directories
    assert (directory.clean, directory.cluster_id, directory.node_id) == (True, "c", 1)
    assert (directory.swept_bytes, directory.seconds) == (0, 0.0)
    outlook = partition_of(found)
    assert (outlook.log_start_offset, outlook.log_end_offset) == (5, 11)
    assert (outlook.segments, outlook.cut_offset, outlook.lost_records) == (2, None, 0)


@pytest.mark.parametrize("name", HARMS)
def test_each_harm_is_named_with_what_follows(name: str, data: Data) -> None:
    harm = HARMS[name]
    harm.do(data)
    before = seen(data.root)
    found = doctor(data.root)
    one = only(found, harm.code)
    assert (one.outcome, one.exception) == (harm.outcome, harm.exception)
    assert found.ok is harm.ok
    assert seen(data.root) == before
    order = list(Outcome)
    assert order.index(found.outcome) >= order.index(harm.outcome)


def seen(root: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and time of change."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.stat()
        found[str(path)] = (status.st_size, status.st_mtime_ns)
    return found


def test_an_index_that_is_a_folder_hides_no_more_than_itself(data: Data) -> None:
    index = data.file(FIRST, ".index")
    index.unlink()
    index.mkdir()
    (data.root / "cleaner-offset-checkpoint").unlink()
    assert doctor(data.root).outcome is STARTS


def test_a_deleted_log_has_no_fault_but_one_that_stops_its_load(data: Data) -> None:
    grow(data.file(LAST, ".timeindex"), bytes(48))
    torn(data)
    deleted = data.partition.with_name(f"orders-0.{_U}-delete")
    data.partition.rename(deleted)
    found = doctor(data.root)
    assert found.ok
    assert {one.severity for one in found.all_findings()} == {"note"}
    (deleted / "core.log").touch()
    assert doctor(data.root).outcome is FAILS


def test_a_mark_that_is_a_folder_is_a_mark(data: Data) -> None:
    unclean(data)
    mark = data.root / ".kafka_cleanshutdown"
    mark.mkdir()
    found = doctor(data.root)
    assert (found.directories[0].clean, list(found.all_findings())) == (True, [])
    assert {one.code for one in verify(data.root).findings} == set()
    remove_clean_shutdown(data.root)
    assert not mark.exists()
    mark.mkdir()
    (mark / "x").touch()
    assert only(doctor(data.root), "unreadable").outcome is OFFLINE


def test_a_cut_says_offsets_and_numbers_of_records(data: Data) -> None:
    flipped(data)
    found = doctor(data.root)
    outlook = partition_of(found)
    assert (outlook.cut_offset, outlook.log_end_offset, outlook.lost_records) == (7, 7, 4)
    assert outlook.truncated_bytes == AT[-1]
    (lost,) = outlook.lost
    assert (lost.first_offset, lost.last_offset, lost.sound_behind) == (7, 10, 1)
    mend = only(found, "records-cut").mend
    assert mend is not None
    assert f"kseg recover {data.partition} --apply" in mend


def test_a_cut_of_zeros_alone_is_what_recover_does_beforehand(data: Data) -> None:
    with_unclean(zeros)(data)
    mend = only(doctor(data.root), "bytes-cut").mend
    assert mend == f"kseg recover {data.partition} --apply"
    assert run(mend.split()[1:]) == 0
    found = doctor(data.root)
    assert {"bytes-cut", "records-cut", "load-fails"}.isdisjoint(
        one.code for one in found.all_findings()
    )


@pytest.mark.parametrize(
    ("do", "mend"),
    [
        (zeros, "kseg recover {} --apply"),
        (in_partition("core.log", ""), "move the file out of the partition"),
    ],
)
def test_a_load_that_fails_has_its_mend(
    data: Data, do: Callable[[Data], object], mend: str
) -> None:
    do(data)
    assert only(doctor(data.root), "load-fails").mend == mend.format(data.partition)


def test_a_start_beyond_the_end_has_one_finding_and_a_command_that_corrects_it(data: Data) -> None:
    data.write_checkpoint("log-start-offset-checkpoint", 999)
    (one,) = doctor(data.root).all_findings()
    assert one.message == (
        "log-start-offset-checkpoint says 999, the log ends at 11: Kafka deletes all its records"
    )
    assert one.records == 11
    mends(one)
    assert list(doctor(data.root).all_findings()) == []


def test_one_bad_partition_hides_no_other(data: Data) -> None:
    zeros(data)
    other = data.root / "payments-0"
    other.mkdir()
    found = doctor(data.root)
    outcomes = {one.topic: one.outcome for one in found.directories[0].partitions}
    assert outcomes == {"orders": FAILS, "payments": STARTS}


# ---- several directories -------------------------------------------------------------------------


def second(data: Data, properties: str = "version=1\ncluster.id=c\nnode.id=1\n") -> Path:
    root = data.root.with_name("second")
    root.mkdir()
    (root / "meta.properties").write_text(properties)
    return root


def test_a_quorum_state_that_kafka_reads_is_no_finding(data: Data) -> None:
    for text in (
        '{"leaderId":-1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"","data_version":1}',
        '{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}\nand more',
    ):
        shutil.rmtree(data.root / "__cluster_metadata-0", ignore_errors=True)
        quorum_state(text)(data)
        assert "quorum-state" not in {one.code for one in doctor(data.root).all_findings()}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("name", ["recovery-point", "log-start"])
def test_a_load_in_a_directory_that_is_offline_stops_the_broker_at_an_open_transaction(
    data: Data, name: str, is_open: bool
) -> None:
    begun = (7, 0, -1, -1, 0, 1003, 0, 8 if is_open else -1)
    data.file(11, ".snapshot").write_bytes(snapshot(begun))
    write(f"{name}-offset-checkpoint", "x\n")(data)
    found = only(doctor(data.root), "checkpoint-format")
    assert found.outcome is (FAILS if is_open else OFFLINE)


def test_kafka_passes_over_a_log_that_is_a_link_without_a_target(data: Data) -> None:
    data.file(LAST).unlink()
    data.file(LAST).symlink_to("/nowhere")
    found = doctor(data.root)
    assert found.outcome is STARTS
    assert partition_of(found).log_end_offset == LAST


def test_a_node_that_only_is_a_controller_loads_no_partition(data: Data, tmp_path: Path) -> None:
    folder("lost+found")(data)
    zeros(data)
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={data.root}\nprocess.roles=controller\n")
    found = doctor(data.root, broker_config=config)
    assert (found.outcome, list(found.all_findings())) == (STARTS, [])
    config.write_text(f"log.dirs={data.root}\nprocess.roles=controller,broker\n")
    assert doctor(data.root, broker_config=config).outcome is FAILS


def test_a_directory_of_a_release_without_zookeeper_has_its_ids(data: Data) -> None:
    (data.root / "meta.properties").unlink()
    assert only(doctor(data.root), "not-formatted").outcome is FAILS
    before = doctor(data.root, release="3.9")
    assert "not-formatted" not in {one.code for one in before.all_findings()}


def test_an_offline_directory_does_not_stop_the_broker(data: Data) -> None:
    found = doctor([data.root, second(data, "version=9\n")])
    assert [each.outcome for each in found.directories] == [STARTS, OFFLINE]
    assert (found.outcome, found.ok) == (OFFLINE, False)


def test_no_directory_at_all_stops_it(data: Data) -> None:
    (data.root / "meta.properties").write_text("version=9\n")
    found = doctor([data.root, second(data, "version=9\n")])
    assert only(found, "no-directory").outcome is FAILS
    assert found.outcome is FAILS


@pytest.mark.parametrize("ids", ["cluster.id=other\nnode.id=1\n", "cluster.id=c\nnode.id=2\n"])
def test_ids_that_disagree_stop_the_broker(data: Data, ids: str) -> None:
    one = only(doctor([data.root, second(data, f"version=1\n{ids}")]), "ids")
    assert (one.outcome, one.exception) == (FAILS, "RuntimeException")


def test_a_copied_directory_id_stops_the_broker(data: Data) -> None:
    text = (data.root / "meta.properties").read_text() + DIRECTORY_ID
    (data.root / "meta.properties").write_text(text)
    found = doctor([data.root, second(data, text)])
    assert "one is a copy" in only(found, "ids").message


def test_the_configured_node_id_counts(data: Data, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=4\nlog.dirs={data.root}\nnum.recovery.threads.per.data.dir=8\n")
    found = doctor(data.root, broker_config=properties)
    assert "node.id is 1, and 4 elsewhere" in only(found, "ids").message
    assert found.directories[0].threads == 8


def test_a_configured_directory_that_is_not_given_makes_it_unknown(
    data: Data, tmp_path: Path
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=1\nlog.dirs={data.root},{tmp_path}/other\n")
    found = doctor(data.root, broker_config=properties)
    assert only(found, "not-given").path == f"{tmp_path}/other"
    assert found.outcome is Outcome.UNKNOWN


def test_the_same_partition_or_directory_twice_stops_the_broker(data: Data) -> None:
    root = second(data)
    (root / "orders-0").mkdir()
    one = only(doctor([data.root, root]), "duplicate-partition")
    assert (one.outcome, one.exception) == (FAILS, "IllegalStateException")
    assert only(doctor([data.root, data.root]), "same-directory").outcome is FAILS


def test_a_second_metadata_log_stops_the_broker(data: Data) -> None:
    root = second(data)
    for each in (data.root, root):
        (each / "__cluster_metadata-0").mkdir()
    assert only(doctor([data.root, root]), "metadata-elsewhere").path == str(root)


def test_a_directory_that_is_not_there_is_made_empty(data: Data) -> None:
    found = doctor([data.root, data.root.with_name("unmounted")])
    assert only(found, "missing").mend == "mount the disk"
    assert not found.ok


# ---- the machine ---------------------------------------------------------------------------------


def test_a_directory_in_use_is_unknown(data: Data) -> None:
    with holding(data.root):
        found = doctor(data.root)
    assert only(found, "in-use").exception == "KafkaException"
    assert found.outcome is Outcome.UNKNOWN


def test_a_file_that_the_owner_may_not_write_is_named(data: Data) -> None:
    if os.getuid() == 0:
        for path in (data.root, *data.root.rglob("*")):
            os.chown(path, 4242, 4242)
        os.chown(data.file(LAST), 0, 0)
    data.file(LAST).chmod(0o444)
    one = only(doctor(data.root), "rights")
    assert data.file(LAST).name in one.message
    assert (one.outcome, one.exception) == (OFFLINE, "IOException")


@pytest.mark.parametrize(
    ("code", "values"),
    [
        ("read-only", {"f_flag": os.ST_RDONLY}),
        ("inodes", {"f_files": 1000, "f_favail": 0}),
    ],
)
def test_the_file_system_is_asked(
    data: Data, monkeypatch: pytest.MonkeyPatch, code: str, values: dict[str, int]
) -> None:
    monkeypatch.setattr(answer.os, "statvfs", lambda path: Disk(**values))
    assert only(doctor(data.root), code).outcome is OFFLINE


@dataclass(frozen=True)
class Disk:
    """What a file system says of itself."""

    f_flag: int = 0
    f_files: int = 0
    f_favail: int = 0
    f_bavail: int = 10
    f_frsize: int = 4096


def test_too_little_room_is_named(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    data.file(0, ".index").unlink()
    unclean(data)
    monkeypatch.setattr(answer.os, "statvfs", lambda path: Disk(f_bavail=0))
    assert only(doctor(data.root), "room").outcome is OFFLINE


def test_limits_of_the_machine_are_warnings(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (64, 64))
    most = tmp_path / "max_map_count"
    most.write_text("3\n")
    monkeypatch.setattr(answer, "_MAPS_MAX", most)
    found = doctor(data.root)
    assert "2 segments" in only(found, "open-files").message
    assert "4 indexes" in only(found, "maps").message
    assert found.ok


def test_what_cannot_be_read_is_a_row_of_the_answer(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(answer, "list_entries", refuse)
    found = doctor(data.root)
    assert only(found, "unreadable").outcome is OFFLINE


# ---- what is printed -----------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str], root: Path) -> list[str]:
    run(["doctor", str(root)])
    return capsys.readouterr().out.splitlines()


def test_a_healthy_broker_of_kraft_has_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = made.Broker(tmp_path / "data")
    broker.says([made.topic("orders"), made.partition(made.FIRST, 0, [7])])
    broker.has()
    write_clean_shutdown(broker.path)
    assert list(doctor(broker.path).all_findings()) == []
    lines = printed(capsys, broker.path)
    assert lines[0].endswith("the broker starts; 0 errors, 0 warnings")
    assert "again" not in "".join(lines)


def test_each_warning_is_printed_or_summed_up_with_its_reason(
    data: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(1, 5):
        shutil.copytree(data.partition, data.root / f"orders-{number}")
    unclean(data)
    lines = printed(capsys, data.root)
    assert lines[0].endswith("0 errors, 6 warnings")
    assert len([line for line in lines if line.startswith("  warning: ")]) == 1
    names = "orders-0, orders-1, orders-2 and 2 more"
    assert f"  5 warnings: no clean stop, so that a start reads {names} again" in lines


def test_a_segment_that_is_read_again_behind_a_clean_stop_is_named(
    data: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    data.file(0, ".index").unlink()
    (line,) = (line for line in printed(capsys, data.root) if line.startswith("  warning: "))
    assert line.startswith("  warning: orders-0: ")
    assert line.endswith("its offset index is missing")


def test_an_empty_segment_has_nothing_that_is_read_again(
    data: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    data.write_log(LAST, *LAST_BATCHES)
    end = doctor(data.root).directories[0].partitions[0].log_end_offset
    data.file(end).touch()
    assert [line for line in printed(capsys, data.root) if "read again" in line] == []


# ---- releases, processes, codes ------------------------------------------------------------------


def test_of_other_releases_only_what_is_known_is_said(data: Data) -> None:
    assert doctor(data.root, release="3.9.1").outcome is STARTS
    assert doctor(data.root, release="3.2").outcome is Outcome.UNKNOWN
    zeros(data)
    found = doctor(data.root, release="2.8")
    assert found.outcome is Outcome.UNKNOWN
    with pytest.raises(ValueError, match="not a release"):
        doctor(data.root, release="latest")


def test_the_advice_for_lost_and_found_is_a_subdirectory(data: Data) -> None:
    folder("lost+found")(data)
    folder("other")(data)
    said = {Path(one.path).name: one.mend for one in doctor(data.root).all_findings()}
    assert "a subdirectory of the mount" in (said["lost+found"] or "")
    assert said["other"] == "move it out of the data directory"


def test_two_jobs_give_the_same_answer(data: Data) -> None:
    for number in range(3):
        (data.root / f"payments-{number}").mkdir()
    flipped(data)

    def without_seconds(found: DoctorReport) -> dict[str, Any]:
        document = found.to_json()
        for directory in document["directories"]:
            del directory["seconds"]
        return document

    assert without_seconds(doctor(data.root, threads=2)) == without_seconds(doctor(data.root))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([], "no longer belongs to the cluster"),
        ([made.topic("orders", made.SECOND)], "now has another id"),
        ([made.topic("orders")], None),
    ],
    ids=["removed", "made again", "still there"],
)
def test_a_partition_of_another_topic_goes_astray(
    tmp_path: Path, said: list[made.Said], why: str | None
) -> None:
    broker = made.Broker(tmp_path / "data")
    broker.says([made.topic("others", made.UUID(int=9)), *said])
    broker.has()
    found = doctor(broker.path)
    strays = [one.message for one in found.all_findings() if one.code == "stray"]
    assert len(strays) == (why is not None)
    assert all(why is not None and why in message for message in strays)


#: What a metadata log says of a topic's partitions, and why partition 0 is not on node 7.
ASSIGNED: dict[str, tuple[list[made.Said | bytes], str | None]] = {
    "here": ([made.partition(made.FIRST, 0, [7, 8])], None),
    "elsewhere": (
        [made.partition(made.FIRST, 0, [8])],
        "its replicas are on 8 and not on 7 any more",
    ),
    "no such one": ([made.partition(made.FIRST, 1, [7])], "its topic has no such partition"),
    "moved away": (
        [made.partition(made.FIRST, 0, [7]), made.moved(made.FIRST, 0, [8, 9])],
        "its replicas are on 8, 9 and not on 7 any more",
    ),
    "moved here": ([made.partition(made.FIRST, 0, [8]), made.moved(made.FIRST, 0, [8, 7])], None),
    "changed": ([made.partition(made.FIRST, 0, [7]), made.moved(made.FIRST, 0, None)], None),
}


@pytest.mark.parametrize(
    ("said", "why"),
    [*ASSIGNED.values(), ([made.partition(made.FIRST, 0, [8]), made.NEWER_PARTITION], None)],
    ids=[*ASSIGNED, "newer"],
)
def test_a_partition_whose_replicas_are_elsewhere_goes_astray(
    tmp_path: Path, said: list[made.Said | bytes], why: str | None
) -> None:
    broker = made.Broker(tmp_path / "data")
    broker.says([made.topic("orders")], said)
    broker.has()
    strays = [one.message for one in doctor(broker.path).all_findings() if one.code == "stray"]
    assert strays == ([] if why is None else [f"stray: {why}; {STRAYS}"])


def test_a_topic_that_is_made_again_forgets_its_replicas(tmp_path: Path) -> None:
    broker = made.Broker(tmp_path / "data")
    broker.says(
        [made.topic("orders"), made.partition(made.FIRST, 0, [8])],
        [made.removed(made.FIRST), made.topic("orders"), made.partition(made.FIRST, 0, [7])],
    )
    broker.has()
    assert "stray" not in {one.code for one in doctor(broker.path).all_findings()}


def test_a_partition_without_an_id_goes_astray_in_kraft(tmp_path: Path) -> None:
    broker = made.Broker(tmp_path / "data")
    broker.says([made.topic("orders")])
    (broker.path / "orders-0").mkdir()
    assert "so its topic id is unknown" in only(doctor(broker.path), "stray").message


@pytest.mark.parametrize("text", [None, "0\n1\n6 220\n"])
@pytest.mark.parametrize(
    ("case", "more"), [("4.2.0-local/plain-0", ""), ("4.2.0-split/split-0", " --tier URL")]
)
def test_leader_epochs_that_do_not_reach_the_start_of_the_tier_delete_it(
    fixtures_dir: Path, tmp_path: Path, text: str | None, case: str, more: str
) -> None:
    name, _, partition = case.partition("/")
    home = tmp_path / "data"
    shutil.copytree(fixtures_dir / "tiered" / name / "local", home)
    assert "tier-deleted" not in {one.code for one in doctor(home).all_findings()}
    path = home / partition / "leader-epoch-checkpoint"
    path.unlink()
    if text is not None:
        path.write_text(text)
    one = only(doctor(home), "tier-deleted")
    assert "segments of the tier" in one.message
    assert str(one.mend).endswith(f"kseg recover {home / partition}{more} --apply")
    if not more:
        mends(one)
        assert "tier-deleted" not in {one.code for one in doctor(home).all_findings()}


def test_each_code_is_met_by_a_test() -> None:
    elsewhere = {
        *("missing", "unreadable", "in-use", "read-only", "rights", "room", "inodes", "ids"),
        *("same-directory", "duplicate-partition", "metadata-elsewhere", "no-directory"),
        *("not-given", "open-files", "maps", "stray", "tier-deleted"),
        *("partition-lost", "partition-behind", "partition-elsewhere"),
        *("metadata-missing", "metadata-cut", "metadata-fetched", "metadata-snapshot"),
        *("feature-level",),
        *("setting-refused", "setting-missing", "setting-ignored", "tier-off"),
    }
    assert {harm.code for harm in HARMS.values()} | elsewhere == set(CODES)
