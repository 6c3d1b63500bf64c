"""Start a real broker on damaged data directories, beside what the doctor says of the same.

    python -m tests.interop.broker.startup [NAME...]     rows of the table, by a part of their names

The broker's data are written once, and lie there stopped cleanly and killed. A row copies one of
these, damages it, asks the doctor, starts the broker, stops it, and compares.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kseg import BatchOptions, Log, LogConfig, encode_batch
from kseg.analysis.doctor import DoctorReport, Outcome, doctor
from kseg.files.metadata import log_directories, parse_properties
from tests.interop.broker.broker import Broker, Said
from tests.interop.broker.situations import SITUATIONS, Situation
from tests.reference import walk

DISKS = ("disk1", "disk2")
#: Partitions whose files a broker changes in the course of a start, in good order too.
_OWN = ("__",)
_OFFLINE = re.compile(
    r"(?:Stopping serving (?:replicas|logs) in dir|Failed to create or validate data directory|"
    r"Error while loading log dir|Error while reading meta.properties file|"
    r"logs from .* because:) ?(\S+?)(?: with uuid|[,:]|$| because)"
)
#: What the broker itself says of the end of a log that it has loaded.
_LOADED = re.compile(r"Completed load of \S*\(dir=(\S+), topicId=.* and log-end-offset (\d+) in ")
_SETTINGS = {"log.index.size.max.bytes": 1 << 20, "num.recovery.threads.per.data.dir": 1}
_VALUE_BYTES, _RECORDS = 10_000, 230
#: What the doctor says of a partition that a start renames.
_ASIDE = frozenset({"stray", "partition-lost", "partition-behind"})
_COPY = re.compile(r"\.[0-9a-f]+-future$")
#: A broker that is to stop by itself does so at once.
_SETTLES_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition's logs: where they end, and how many bytes they have."""

    end: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Became:
    """What a start has made of the directories.

    Attributes:
        starts: the broker serves.
        offline: directories that it does without.
        partitions: by disk and name, those of users alone.
        ends: where the next record goes, as the broker says of the logs that it has loaded.
        said: what it logged.
    """

    starts: bool
    offline: frozenset[str]
    partitions: Mapping[str, Partition]
    ends: Mapping[str, int]
    said: Said


class Starts:
    """One broker's data in two states, and the broker."""

    def __init__(self, home: Path) -> None:
        """Write the data, in a folder that is empty."""
        self.home = home
        dirs = {"log.dirs": ",".join(str(home / disk) for disk in DISKS)}
        self.broker = Broker(home, {**_SETTINGS, **dirs})
        self.configured = self.broker.properties.read_text(encoding="utf-8")
        self._write()

    def _write(self) -> None:
        broker = self.broker
        boot = self.home / "disk1" / "bootstrap.checkpoint"
        if not boot.exists():  # since Kafka 4.4 only directories of older releases have it
            (snapshot,) = boot.parent.glob("__cluster_metadata-0/*.checkpoint")
            boot.write_bytes(snapshot.read_bytes())
        broker.start()
        for topic, partitions in (("orders", 4), ("users", 2), ("txn", 2)):
            policy = "compact" if topic == "users" else "delete"
            broker.create(
                topic, partitions, segment_bytes=1 << 20, cleanup_policy=policy, flush_messages=100
            )
            for number in range(partitions):
                self._fill(topic, number)
        broker.stop()
        self._open_transaction()
        broker.start()
        self._keep("killed", broker.kill)
        broker.start()
        self._keep("stopped", broker.stop)

    def _fill(self, topic: str, number: int) -> None:
        keys = [b"%d" % (n % 10) for n in range(_RECORDS if topic == "orders" else 60)]
        group: dict[str, Any] = {
            "records": [{"key": key, "value": key * _VALUE_BYTES} for key in keys]
        }
        if topic != "txn":
            self.broker.produce(topic, [group], number, batch_size=40_000)
            return
        groups = [{**group, "end": "abort"}, {**group, "end": "commit"}]
        self.broker.produce(topic, groups, number, f"id-{number}", batch_size=40_000)

    def _open_transaction(self) -> None:
        """Begin one that no coordinator knows, so that none ends it, on the second disk."""
        (path,) = (self.home / "disk2").glob("txn-*")
        options = BatchOptions(
            producer_id=4_000, producer_epoch=0, base_sequence=0, transactional=True
        )
        with Log.open(path, mode="append", config=LogConfig(segment_bytes=1 << 20)) as log:
            log.append(
                encode_batch(
                    {"value": [b"open"], "timestamp": [time.time_ns() // 1_000_000]}, options
                )
            )

    def _keep(self, state: str, end: Any) -> None:
        end()
        for disk in DISKS:
            _copy(self.home / disk, self.home / state / disk)

    def close(self) -> None:
        """End the broker."""
        self.broker.__exit__(None, None, None)

    def lay_out(self, situation: Situation) -> None:
        """Copy the data, and damage them."""
        for path in (self.home / name for name in (*DISKS, "away")):
            _remove(path)
        for disk in DISKS:
            _copy(
                self.home / ("killed" if situation.killed else "stopped") / disk, self.home / disk
            )
        situation.damage(self.home)
        roles = f"process.roles={situation.roles}"
        text = self.configured.replace("process.roles=broker,controller", roles)
        if "broker" not in situation.roles:
            lines = text.splitlines(keepends=True)
            ours = [re.sub(r"=PLAINTEXT://[^,]*,CONTROLLER", "=CONTROLLER", line) for line in lines]
            text = "".join(line for line in ours if not line.startswith("advertised.listeners"))
        own = [f"{name}={value}\n" for name, value in situation.settings.items()]
        text = "".join([text, "\n", *own]).replace("{root}", str(self.home))
        self.broker.properties.write_text(text, encoding="utf-8")

    def ask(self) -> DoctorReport:
        """What the doctor says of what lies there."""
        server = parse_properties(self.broker.properties.read_text(encoding="utf-8"))
        own = server.get("metadata.log.dir")
        places = dict.fromkeys((*log_directories(server), *([own] if own else [])))
        return doctor(places, broker_config=self.broker.properties)

    def start(self) -> Became:
        """Start the broker, stop it again."""
        begun, starts = self.broker.log_bytes, False
        with suppress(RuntimeError):
            self.broker.start()
            starts = not self.broker.ends_within(_SETTLES_SECONDS)
        if starts:
            self.broker.stop()
        else:
            self.broker.kill()
        said = self.broker.said(begun)
        offline = {found for line in said.lines for found in _OFFLINE.findall(line.text)}
        names = {Path(each.rstrip(".,;")).name for each in offline} & set(DISKS)
        loaded = [found.groups() for line in said.lines if (found := _LOADED.match(line.text))]
        ends = {f"{Path(place).parent.name}/{Path(place).name}": int(end) for place, end in loaded}
        return Became(starts, frozenset(names), self.partitions(), ends, said)

    def partitions(self) -> dict[str, Partition]:
        """What lies there now."""
        found = {}
        for disk in DISKS:
            place = self.home / disk
            for path in sorted(place.iterdir()) if place.is_dir() else ():
                if path.is_dir() and not path.name.startswith(_OWN):
                    found[f"{disk}/{path.name}"] = _partition(path)
        return found


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _partition(path: Path) -> Partition:
    """By another reader than kseg's; the end is that of the last segment."""
    logs = sorted(each for each in path.glob("*.log") if each.is_file())
    if not logs:
        return Partition(0, 0)
    last = walk(logs[-1].read_bytes()).batches
    base = re.sub(r"\D", "", logs[-1].name) or "0"
    end = last[-1].last_offset + 1 if last else int(base)
    return Partition(end, sum(each.stat().st_size for each in logs))


# ---- comparing -----------------------------------------------------------------------------------

Difference = tuple[str, object, object]


def differences(
    found: DoctorReport, before: Mapping[str, Partition], became: Became
) -> Iterator[Difference]:
    """What, as Kafka did it, as the doctor said."""
    offline = frozenset(
        Path(one.path).name for one in found.directories if one.outcome is Outcome.OFFLINE
    )
    if (found.outcome is Outcome.FAILS, found.outcome is Outcome.UNKNOWN) != (
        not became.starts,
        False,
    ):
        yield "the broker", "starts" if became.starts else "exits", found.outcome.value
        return
    if not became.starts:
        return
    if offline != became.offline:
        yield "offline", sorted(became.offline), sorted(offline)
        return
    yield from _of_partitions(found, before, became)


def _of_partitions(
    found: DoctorReport, before: Mapping[str, Partition], became: Became
) -> Iterator[Difference]:
    told = {
        f"{Path(one.path).name}/{Path(each.path).name}": each
        for one in found.directories
        for each in one.partitions
    }
    after = became.partitions
    new = [name for name in after if name not in before and name.endswith("-stray")]
    strays = {name.rpartition(".")[0] for name in new}
    named = {
        name
        for name, one in told.items()
        if not Path(name).name.startswith(_OWN)
        and any(each.code in _ASIDE for each in one.findings)
    }
    named |= {
        name
        for name in told
        for one in found.findings
        if one.code == "metadata-missing" and Path(name).name in one.partitions
        if not Path(name).name.startswith(_OWN)
    }
    said = {_COPY.sub("", name) for name in named}
    if strays != said:
        yield "put aside", sorted(strays), sorted(said)
    empty = {name for name, now in after.items() if not now.bytes and name not in {*before, *new}}
    paths = {Path(one.path) for one in found.findings if one.code in _ASIDE}
    absent = {f"{p.parent.name}/{p.name}" for p in paths if not p.name.startswith(_OWN)}
    # Beside a directory that went offline, a start may make its partitions anew in another one.
    if not became.offline and empty != absent:
        yield "rebuilt", sorted(empty), sorted(absent)
    for name, was in before.items():
        is_made_anew = name in strays or name not in after
        if name.partition("/")[0] in became.offline or is_made_anew or name not in told:
            continue
        one, now = told[name], after[name]
        if one.kind != "log":
            continue
        end = became.ends.get(name, now.end)
        if one.log_end_offset != end:
            yield f"{name} ends", end, one.log_end_offset
        if one.truncated_bytes != was.bytes - now.bytes:
            yield f"{name}: bytes that go", was.bytes - now.bytes, one.truncated_bytes
        if was.end > now.end and one.cut_offset is None:
            yield f"{name} is cut at", now.end, None


def compared(starts: Starts, situation: Situation) -> tuple[list[Difference], DoctorReport, Became]:
    """Do one row."""
    starts.lay_out(situation)
    before, found = starts.partitions(), starts.ask()
    became = starts.start()
    return list(differences(found, before, became)), found, became


def main() -> int:
    """The command line."""
    wanted = [
        each
        for each in SITUATIONS
        if not sys.argv[1:] or any(part in each.title for part in sys.argv[1:])
    ]
    bad = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        starts = Starts(Path(home))
        try:
            for situation in wanted:
                differs, found, became = compared(starts, situation)
                print(
                    "DIFF" if differs else "ok  ", situation.title, found.outcome.value, flush=True
                )
                bad += bool(differs)
                for each in differs:
                    print("      ", *each, flush=True)
                if differs:
                    for one in found.all_findings():
                        if one.severity == "error":
                            print("       kseg:", one.code, one.path, one.message, one.exception)
                    for line in [line for line in became.said.lines if line.level != "INFO"][:6]:
                        print("       kafka:", line.level, line.text[:230], flush=True)
        finally:
            starts.close()
    print(f"{len(wanted)} situations, {bad} differ")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
