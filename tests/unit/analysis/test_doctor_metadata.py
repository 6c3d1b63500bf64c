"""The doctor and the metadata log: what a start takes from service, and what brings it back."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from kseg.analysis.doctor import BrokerFinding, DoctorReport, Outcome, doctor
from kseg.analysis.verify import verify
from kseg.cli.main import run
from kseg.commands import command_line
from kseg.errors import NotALogError
from kseg.internal.ids import id_text
from tests.terminal import type_line
from tests.unit.analysis.breaks import patch
from tests.unit.log.settings import made

#: A directory's id: those below 100 are words.
HERE, GONE = UUID(int=1000), UUID(int=2000)
CONFIG = "log.dirs={0}/data,{0}/more\nnode.id=7\n"
CODES = ("partition-lost", "partition-behind", "partition-elsewhere")
SOLE = "process.roles=broker,controller\ncontroller.quorum.voters=7@h:1\n"
SEVERAL = "process.roles=broker,controller\ncontroller.quorum.voters=7@h:1,8@h:1,9@h:1\n"
BROKER_ONLY = "process.roles=broker\ncontroller.quorum.voters=8@h:1\n"


def only(found: DoctorReport, *codes: str) -> BrokerFinding:
    """The one finding with one of these codes."""
    (one,) = (each for each in found.all_findings() if each.code in codes)
    return one


def mends(one: BrokerFinding) -> None:
    """Run what the last line of its advice says."""
    assert one.mend is not None
    type_line(one.mend.splitlines()[-1])


def node(path: Path, directory_id: UUID | None = None, **cluster: str) -> made.Broker:
    """A data directory of node 7."""
    broker = made.Broker(path, **cluster)
    if directory_id is not None:
        with (path / "meta.properties").open("a") as file:
            file.write(f"directory.id={id_text(directory_id)}\n")
    return broker


def configured(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(text.format(tmp_path))
    return path


# ---- partitions of this node ---------------------------------------------------------------------


def missing(broker: made.Broker) -> None:
    pass


def without_id(broker: made.Broker) -> None:
    broker.has(topic_id=None)


def of_another_id(broker: made.Broker) -> None:
    broker.has(topic_id=UUID(int=77))


ASSIGNED = {
    "the leader": (made.partition(made.FIRST, 0, [7]), "partition-lost"),
    "the leader of others": (made.partition(made.FIRST, 0, [7, 8]), "partition-lost"),
    "alone in sync": (made.partition(made.FIRST, 0, [8, 7], isr=[7], leader=-1), "partition-lost"),
    "a follower": (made.partition(made.FIRST, 0, [8, 7]), "partition-behind"),
    "being added": (
        made.partition(made.FIRST, 0, [8, 7], isr=[8], addingReplicas=[7]),
        "partition-elsewhere",
    ),
}


@pytest.mark.parametrize("harm", [missing, without_id, of_another_id])
@pytest.mark.parametrize("how", ASSIGNED)
def test_a_partition_that_a_start_makes_empty_weighs_by_who_else_has_its_records(
    tmp_path: Path, how: str, harm: Callable[[made.Broker], None]
) -> None:
    said, code = ASSIGNED[how]
    broker = node(tmp_path / "data")
    broker.says([made.topic("orders"), said])
    harm(broker)
    found = doctor(broker.path)
    one = only(found, *CODES)
    assert (one.code, one.path) == (code, f"{broker.path}/orders-0")
    assert found.ok is (code != "partition-lost")
    assert "stray" not in {each.code for each in found.all_findings()}


@pytest.mark.parametrize("harm", [without_id, of_another_id])
def test_the_id_that_is_printed_mends_the_partition(
    tmp_path: Path, harm: Callable[[made.Broker], None]
) -> None:
    broker = node(tmp_path / "data")
    broker.says([made.topic("orders"), made.partition(made.FIRST, 0, [7])])
    harm(broker)
    mends(only(doctor(broker.path), "partition-lost"))
    assert doctor(broker.path).ok
    (broker.path / "orders-0" / "partition.metadata").write_text("")
    mends(only(doctor(broker.path), "load-fails"))
    assert doctor(broker.path).ok


def test_the_first_line_says_what_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = node(tmp_path / "data")
    broker.says([made.topic("orders"), made.partition(made.FIRST, 0, [7])])
    (broker.path / "replication-offset-checkpoint").write_text("0\n1\norders 0 4000\n")
    assert run(["doctor", str(broker.path)]) == 1
    assert capsys.readouterr().out.startswith(
        "Kafka 4.2: the broker starts and LOSES 4000 records of orders-0 from service; 1 error"
    )


def test_a_node_that_is_no_controller_is_said_how_old_its_metadata_is(tmp_path: Path) -> None:
    broker = node(tmp_path / "data")
    broker.says([made.topic("orders"), made.partition(made.FIRST, 0, [7])])
    for text, is_said in ((BROKER_ONLY, True), (SOLE, False)):
        config = configured(tmp_path, f"log.dirs={{0}}/data\n{text}")
        message = only(doctor(broker.path, broker_config=config), "partition-lost").message
        assert ("goes up to offset 2" in message) is is_said


# ---- directories ---------------------------------------------------------------------------------


def with_a_disk_away(tmp_path: Path) -> made.Broker:
    """Node 7 has a partition in a directory that is not here."""
    broker = node(tmp_path / "data", HERE)
    return broker.says(
        [made.topic("orders"), made.partition(made.FIRST, 0, [7], directories=[GONE])]
    )


def test_partitions_in_a_directory_that_was_not_given_are_a_note(tmp_path: Path) -> None:
    found = doctor(with_a_disk_away(tmp_path).path)
    one = only(found, *CODES)
    assert (one.code, one.path) == ("partition-elsewhere", f"directory.id {id_text(GONE)}")
    assert "1 partition (orders-0)" in one.message
    assert found.ok


def test_partitions_of_a_disk_that_was_replaced_are_lost(tmp_path: Path) -> None:
    broker = with_a_disk_away(tmp_path)
    node(tmp_path / "more", UUID(int=3000))
    homes = [broker.path, tmp_path / "more"]
    found = doctor(homes, broker_config=configured(tmp_path, CONFIG))
    assert only(found, *CODES).code == "partition-lost"


@pytest.mark.parametrize("there", [True, False])
def test_an_empty_or_missing_mount_point_is_not_to_be_formatted(
    tmp_path: Path, there: bool
) -> None:
    broker = with_a_disk_away(tmp_path)
    if there:
        (tmp_path / "more").mkdir()
    found = doctor([broker.path, tmp_path / "more"])
    one = only(found, "not-formatted")
    assert f"1 partition (orders-0) to {id_text(GONE)}" in one.message
    assert one.mend is not None
    assert "kafka-storage" not in one.mend
    assert found.outcome is Outcome.FAILS


def test_lost_ids_are_printed_with_the_directory_that_it_was(tmp_path: Path) -> None:
    broker = with_a_disk_away(tmp_path)
    more = node(tmp_path / "more", GONE)
    more.has()
    before = (more.path / "meta.properties").read_text()
    (more.path / "meta.properties").unlink()
    homes = [broker.path, more.path]
    mends(only(doctor(homes), "not-formatted"))
    assert (more.path / "meta.properties").read_text() == before
    assert doctor(homes).ok


def test_a_new_disk_is_to_be_formatted_with_the_cluster_id(tmp_path: Path) -> None:
    broker = node(tmp_path / "data", HERE)
    broker.says([made.topic("orders")])
    (tmp_path / "more").mkdir()
    assert only(doctor([broker.path, tmp_path / "more"]), "not-formatted").mend == (
        "kafka-storage.sh format --ignore-formatted -t c1 -c server.properties"
    )


# ---- no metadata log -----------------------------------------------------------------------------

NO_LOG: dict[str, tuple[str | None, str, str]] = {
    "unknown": (None, "metadata-missing", "if this node is a controller"),
    "the only controller": (SOLE, "metadata-missing", "begins a new cluster without topics"),
    "one of three": (SEVERAL, "metadata-missing", "if the other controllers have no leader"),
    "broker only": (BROKER_ONLY, "metadata-fetched", "fetches it from the controllers"),
    "elsewhere": ("metadata.log.dir=/elsewhere\n", "not-given", "the broker's metadata.log.dir"),
}


@pytest.mark.parametrize("how", NO_LOG)
def test_what_follows_without_a_metadata_log_depends_on_the_role(tmp_path: Path, how: str) -> None:
    text, code, message = NO_LOG[how]
    broker = node(tmp_path / "data")
    broker.has()
    config = None if text is None else configured(tmp_path, f"log.dirs={{0}}/data\n{text}")
    found = doctor(broker.path, broker_config=config)
    one = only(found, code)
    assert message in one.message
    assert found.ok is (code == "metadata-fetched")
    if code == "metadata-missing":
        assert "the 1 partition here becomes -stray" in one.message
        assert one.partitions == ("orders-0",)


@pytest.mark.parametrize("how", ["no file", "an empty log", "a snapshot of no topic"])
def test_an_empty_metadata_log_is_as_a_missing_one(tmp_path: Path, how: str) -> None:
    broker = node(tmp_path / "data")
    broker.has()
    broker.log.mkdir()
    if how == "an empty log":
        broker.says()
    if how == "a snapshot of no topic":
        broker.has_snapshot(90, made.snapshot([[made.feature("metadata.version", 29)]]))
    found = doctor(broker.path)
    assert not found.ok
    assert "the 1 partition here becomes -stray" in only(found, "metadata-missing").message
    config = configured(tmp_path, f"log.dirs={{0}}/data\n{BROKER_ONLY}")
    assert only(doctor(broker.path, broker_config=config), "metadata-fetched")


# ---- the files beside it -------------------------------------------------------------------------

SOUND = made.snapshot([[made.feature("metadata.version", 29)], [made.topic("orders")]])
#: Bytes of a snapshot, and Kafka's exception; None for one that it takes.
SNAPSHOTS: dict[str, tuple[bytes, str | None]] = {
    "sound": (SOUND, None),
    "empty": (b"", "NoSuchElementException"),
    "noise": (b"?" * 99, "CorruptRecordException"),
    "flipped": (SOUND[:-1] + b"?", "CorruptRecordException"),
    "torn": (SOUND[:-5], "CorruptRecordException"),
    "zeros behind it": (SOUND + bytes(99), "CorruptRecordException"),
}


@pytest.mark.parametrize("how", SNAPSHOTS)
def test_a_node_reads_no_older_snapshot_in_the_place_of_the_newest(
    tmp_path: Path, how: str
) -> None:
    data, exception = SNAPSHOTS[how]
    broker = node(tmp_path / "data").says([made.topic("orders")])
    broker.has_snapshot(1, data)
    found = doctor(broker.path)
    assert found.outcome is (Outcome.STARTS if exception is None else Outcome.FAILS)
    codes = {one.code for one in verify(broker.path).findings}
    assert ("kraft-snapshot" in codes) is (exception is not None)
    assert "torn-tail" not in codes
    if exception is not None:
        one = only(found, "metadata-snapshot")
        assert one.exception == exception
        mends(one)
        assert doctor(broker.path).outcome is Outcome.STARTS


def test_the_newest_snapshot_is_needed_where_the_log_begins_behind_an_older_one(
    tmp_path: Path,
) -> None:
    broker = node(tmp_path / "data").says([made.topic("orders")], base_offset=9)
    broker.has_snapshot(9, b"")
    assert "Restore it" in (only(doctor(broker.path), "metadata-snapshot").mend or "")


@pytest.mark.parametrize(
    "name", ["x.checkpoint", ".checkpoint", f"{5:020}.checkpoint", "x.checkpoint.part"]
)
def test_a_file_in_the_metadata_log_with_no_name_of_a_snapshot_stops_a_node(
    tmp_path: Path, name: str
) -> None:
    broker = node(tmp_path / "data").says([made.topic("orders")])
    (broker.log / name).touch()
    is_whole = name.endswith(".part")
    assert ("name" in {one.code for one in verify(broker.path).findings}) is not is_whole
    one = only(doctor(broker.path), "metadata-snapshot")
    assert (one.outcome, one.exception) == (Outcome.FAILS, "NumberFormatException")
    mends(one)
    assert doctor(broker.path).ok


@pytest.mark.parametrize("how", ["sound", "empty", "noise", "flipped", "zeros behind it", "torn"])
def test_a_bootstrap_file_is_read_at_each_start(tmp_path: Path, how: str) -> None:
    broker = node(tmp_path / "data").says([made.topic("orders")])
    (broker.path / "bootstrap.checkpoint").write_bytes(SNAPSHOTS[how][0])
    found = doctor(broker.path)
    assert found.ok is (how in ("sound", "torn"))
    if not found.ok:
        one = only(found, "metadata-snapshot")
        assert one.outcome is Outcome.FAILS
        mends(one)
        assert doctor(broker.path).ok


@pytest.mark.parametrize(
    ("release", "level", "fails"),
    [
        *(("3.9", 29, True), ("3.9.1", 21, False), ("4.2", 29, False), ("4.2", 30, True)),
        *(("4.0", 25, False), ("4.0", 26, True), ("4.0", 6, True), ("9.9", 99, False)),
    ],
)
def test_a_metadata_version_stops_the_releases_that_do_not_know_it(
    tmp_path: Path, release: str, level: int, fails: bool
) -> None:
    broker = node(tmp_path / "data").says([made.feature("metadata.version", level)])
    found = doctor(broker.path, release=release)
    assert (found.outcome is Outcome.FAILS) is fails
    assert ("feature-level" in {one.code for one in found.all_findings()}) is fails


def test_a_disk_for_the_metadata_alone_serves_no_partition(tmp_path: Path) -> None:
    broker, other = node(tmp_path / "data", HERE), node(tmp_path / "more", GONE)
    here = made.partition(made.FIRST, 0, [7], directories=[HERE])
    broker.says([made.topic("orders"), here])
    broker.has()
    text = "log.dirs={0}/more\nmetadata.log.dir={0}/data\nnode.id=7\n"
    config = configured(tmp_path, text)
    found = doctor([other.path, broker.path], broker_config=config)
    one = only(found, "partition-lost")
    assert one.path == f"{other.path}/orders-0"
    assert f"it is in {broker.path}, which log.dirs does not name" in one.message
    config.write_text(text.format(tmp_path).replace("/more\n", f"/more,{broker.path}\n"))
    assert doctor([other.path, broker.path], broker_config=config).ok


@pytest.mark.parametrize(("number", "fails"), [(0, True), (99, True), (100, False)])
def test_a_reserved_directory_id_stops_a_node(tmp_path: Path, number: int, fails: bool) -> None:
    broker = node(tmp_path / "data", UUID(int=number)).says([made.topic("orders")])
    assert (doctor(broker.path).outcome is Outcome.FAILS) is fails


# ---- a damaged one -------------------------------------------------------------------------------


def damaged(tmp_path: Path) -> made.Broker:
    """The second batch is damaged, by which node 7 has two of its topics."""
    broker = node(tmp_path / "data")
    offsets = UUID(int=5)
    said = (
        [made.topic("orders"), made.partition(made.FIRST, 0, [7])],
        [made.topic("payments", made.SECOND), made.partition(made.SECOND, 0, [7])],
        [made.topic("__consumer_offsets", offsets), made.partition(offsets, 0, [7])],
        [made.setting("retention.ms", "1")],
    )
    broker.says(*said)
    for name, topic_id in (
        ("orders-0", made.FIRST),
        ("payments-0", made.SECOND),
        ("__consumer_offsets-0", offsets),
    ):
        broker.has(name, topic_id)
    patch(broker.log / f"{0:020d}.log", len(made.batches(said[:1])) + 70, b"?")
    return broker


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        (None, "If there are more controllers, "),
        (
            SOLE,
            "Restore it from a backup, or replace it by the salvaged part:\nkseg salvage ",
        ),
        (SEVERAL, "While a majority of the other controllers is up, move it away"),
    ],
)
def test_a_cut_of_the_metadata_log_says_what_is_forgotten(
    tmp_path: Path, text: str | None, mend: str
) -> None:
    broker = damaged(tmp_path)
    config = None if text is None else configured(tmp_path, f"log.dirs={{0}}/data\n{text}")
    found = doctor(broker.path, broker_config=config)
    one = only(found, "metadata-cut")
    assert "topics __consumer_offsets, payments; settings of orders" in one.message
    assert "committed offsets are lost" in one.message
    assert set(one.partitions) == {"payments-0", "__consumer_offsets-0"}
    assert one.mend is not None
    assert one.mend.startswith(mend)
    assert {each.code for each in found.all_findings()} & {"stray", "records-cut", "swept"} == set()


def test_a_node_that_is_no_controller_fetches_what_is_cut(tmp_path: Path) -> None:
    broker = damaged(tmp_path)
    config = configured(tmp_path, f"log.dirs={{0}}/data\n{BROKER_ONLY}")
    found = doctor(broker.path, broker_config=config)
    assert only(found, "metadata-fetched", "metadata-cut").code == "metadata-fetched"
    assert found.ok


def test_a_metadata_log_that_no_broker_can_read_stops_it(tmp_path: Path) -> None:
    """No checksum covers the magic: loading keeps the batch, and its reader refuses it."""
    broker = damaged(tmp_path)
    said = [made.topic("orders"), made.partition(made.FIRST, 0, [7])]
    broker.says(said, [made.NO_OP])
    patch(broker.log / f"{0:020d}.log", len(made.batches([said])) + 16, b"X")
    found = doctor(broker.path)
    one = only(found, "load-fails")
    assert (one.outcome, one.exception) == (Outcome.FAILS, "CorruptRecordException")
    assert found.outcome is Outcome.FAILS


@pytest.mark.parametrize("text", ["", SOLE, SEVERAL, BROKER_ONLY])
def test_no_advice_names_a_verb_that_refuses_the_metadata_log(tmp_path: Path, text: str) -> None:
    """Only of a sole controller's log a salvaged copy is named, and salvage takes it."""
    broker = damaged(tmp_path)
    config = configured(tmp_path, f"log.dirs={{0}}/data\n{text}")
    findings = doctor(broker.path, broker_config=config).directories[0].partitions[0].findings
    lines = [line for one in findings for line in (one.mend or "").splitlines()]
    commands = {line for line in lines if line.startswith("kseg ")}
    out = tmp_path / "out"
    salvage = command_line("kseg", "salvage", broker.log, "-o", "OUT")
    assert commands == ({salvage} if text in ("", SOLE) else set())
    for line in commands:
        words = shlex.split(line.replace("OUT", str(out)))
        assert run(words[1:]) == 1
        assert (out / broker.log.name).is_dir()


def test_a_file_in_the_place_of_a_partition_takes_the_directory_offline(tmp_path: Path) -> None:
    broker = node(tmp_path / "data")
    broker.says([made.topic("orders"), made.partition(made.FIRST, 0, [7])])
    (broker.path / "orders-0").write_text("x")
    found = doctor(broker.path)
    one = only(found, "unreadable", *CODES)
    assert (one.outcome, one.exception) == (Outcome.OFFLINE, "KafkaStorageException")
    assert found.directories[0].outcome is Outcome.OFFLINE
    mends(one)
    assert only(doctor(broker.path), "unreadable", *CODES).code == "partition-lost"


@pytest.mark.parametrize(("topic_id", "fails"), [(made.FIRST, True), (UUID(int=77), False)])
def test_a_copy_beside_its_log_stops_the_broker(
    tmp_path: Path, topic_id: UUID, *, fails: bool
) -> None:
    """Kafka renames it to the log that is there; a copy of another topic id it leaves."""
    broker = node(tmp_path / "data")
    broker.says([made.topic("orders"), made.partition(made.FIRST, 0, [7])])
    broker.has("orders-0", made.FIRST)
    broker.has("orders-0.0123456789abcdef0123456789abcdef-future", topic_id)
    found = doctor(broker.path)
    assert (found.outcome is Outcome.FAILS) is fails
    if fails:
        mends(only(found, "duplicate-partition"))
        assert doctor(broker.path).ok


@pytest.mark.parametrize(
    ("assigned", "topic_id", "codes"),
    [
        (HERE, made.FIRST, []),
        (HERE, UUID(int=77), ["partition-lost", "stray"]),
        (HERE, None, ["partition-lost", "stray"]),
        (UUID(int=0), made.FIRST, ["partition-lost"]),
    ],
)
def test_a_copy_whose_log_is_gone_becomes_the_log(
    tmp_path: Path, assigned: UUID, topic_id: UUID | None, codes: list[str]
) -> None:
    """In the directory that the partition is assigned to; one of another topic is put aside."""
    broker = node(tmp_path / "data", HERE)
    assigned_to = made.partition(made.FIRST, 0, [7], directories=[assigned])
    broker.says([made.topic("orders"), assigned_to])
    broker.has("orders-0.0123456789abcdef0123456789abcdef-future", topic_id)
    found = doctor(broker.path, broker_config=configured(tmp_path, "log.dirs={0}/data\n"))
    assert sorted({each.code for each in found.all_findings()} & {*CODES, "stray"}) == codes


def test_a_directory_that_holds_data_directories_is_refused_with_their_names(
    tmp_path: Path,
) -> None:
    node(tmp_path / "data")
    with pytest.raises(
        NotALogError, match=f"give those that are in it: kseg doctor {tmp_path}/data"
    ):
        doctor(tmp_path)
    (tmp_path / "data" / "etc" / "some").mkdir(parents=True)
    with pytest.raises(NotALogError, match="nothing in it is a broker's"):
        doctor(tmp_path / "data" / "etc")
