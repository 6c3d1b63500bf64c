"""Make the data of Kafka's releases in `kseg/internal`, from the jars that Maven brings.

    python -m tools.kafka_release.make kseg/internal

For a new release, add it to `RELEASES`, run this, and set `kseg.constants.NEWEST_RELEASE`. A test
compares the data with the jars of the newest release.

Needs mvn and a JDK. `schemas.json` gets the layouts of the newest release beside the older ones,
see `schemas`. `releases.json` has, for topics and for brokers, each setting with its type and its
check, `TYPE CHECK`. The first release has all settings; each later one has those that differ from
the release before it, null for a setting that went. A check is a range `LEAST..MOST`, with `,VALUE`
where one value beside the range is allowed, or the allowed words `A|B`. `other` has the names of
groups, client metrics and quotas by type; it stays as it is. `metadata_versions` has the least and
the largest metadata version of each release, and the name of the largest.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tools.kafka_release import schemas

RELEASES = ("3.9.1", "4.0.0", "4.1.1", "4.2.0", "4.3.1", "4.4.0")
#: What `KafkaConfig.validateValues` asks of single settings, beside their definitions.
VALIDATED = {
    "log.roll.ms": "1..",
    "log.roll.jitter.ms": "0..",
    "log.retention.ms": "..-1,1..",
    "log.retention.minutes": "..-1,1..",
    "log.retention.hours": "..-1,1..",
    "share.coordinator.snapshot.update.records.per.snapshot": "0..500",
}
#: Pairs of a broker's settings of which the first is not below the second, beside those of groups.
ORDERED = [
    ("replica.socket.timeout.ms", "replica.fetch.wait.max.ms"),
    ("replica.lag.time.max.ms", "replica.fetch.wait.max.ms"),
    ("group.share.max.share.sessions", "group.share.max.size"),
    ("group.streams.max.standby.replicas", "group.streams.num.standby.replicas"),
    ("group.streams.max.warmup.replicas", "group.streams.num.warmup.replicas"),
]
_OF_GROUPS = re.compile(r"(group\.(?:consumer|share|streams)\.)(max|min)\.(.+)")
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>kseg</groupId><artifactId>kseg</artifactId>
<version>1</version><dependencies><dependency><groupId>org.apache.kafka</groupId>
<artifactId>kafka_2.13</artifactId><version>{}</version></dependency></dependencies></project>"""
_RANGE = re.compile(r"\[([-\d.]*?)(?:,)?\.\.\.,?([-\d.]*)\](?: or (-?\d+))?")


class Release(NamedTuple):
    """What the jars of a release say.

    Attributes:
        settings: `TYPE CHECK` by scope and name.
        defaults: of the settings of a broker.
        metadata_versions: the least, the largest, and the name of the largest.
        messages: the definitions of messages, by name.
    """

    settings: dict[str, dict[str, str]]
    defaults: dict[str, str]
    metadata_versions: tuple[int, int, str]
    messages: dict[str, schemas.Definition]


def read_release(release: str, folder: Path) -> Release:
    """Bring the jars of a release into a new folder, and ask their classes."""
    folder.mkdir()
    (folder / "pom.xml").write_text(_POM.format(release))
    jars = folder / "jars"
    run = ("mvn", "-q", "--batch-mode", "-f", folder / "pom.xml", "dependency:copy-dependencies")
    subprocess.run([*run, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"], check=True)
    source = Path(__file__).with_name("Release.java")
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", folder, source], check=True)
    lines = subprocess.run(
        ["java", "-cp", f"{folder}:{jars}/*", "Release"],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    ).stdout.splitlines()
    settings: dict[str, dict[str, str]] = {"topic": {}, "broker": {}, "group": {}}
    defaults: dict[str, str] = {}
    versions = (0, 0, "")
    for line in lines:
        scope, name, kind, default, *validator = line.split("\t")
        if scope == "metadata.version":
            versions = int(name), int(kind), default
            continue
        check = _check(*validator) if len(validator) == 2 else ""
        if scope == "broker":
            check = VALIDATED.get(name, check)
            defaults[name] = default
        settings[scope][name] = f"{kind} {check}".strip()
    return Release(settings, defaults, versions, schemas.definitions(jars))


def _check(validator: str, text: str) -> str:
    numbers = _RANGE.fullmatch(text)
    if numbers:
        least, most, beside = (each or "" for each in numbers.groups())
        return f"{least}..{most}" + (f",{beside}..{beside}" if beside else "")
    words = re.fullmatch(r"(?:\(case insensitive\) )?\[(.+)\]", text)
    if validator in ("ValidString", "ValidList") and words:
        return "|".join(words[1].split(", "))
    return ""


def ordered(names: set[str]) -> list[tuple[str, str]]:
    """The pairs of settings of which the first is not below the second."""
    pairs = list(ORDERED)
    for limit in filter(None, map(_OF_GROUPS.fullmatch, sorted(names))):
        name = limit[1] + limit[3]
        if name in names:
            pairs.append((limit[0], name) if limit[2] == "max" else (name, limit[0]))
    return pairs


def made(folder: Path, scratch: Path) -> dict[str, str]:
    """The texts of both files, by name.

    Args:
        folder: with the files as they are; older releases stay as they have them.
        scratch: for the jars.
    """
    old = json.loads((folder / "releases.json").read_text())
    table: dict[str, Any] = {
        "other": old["other"],
        "metadata_versions": old["metadata_versions"],
        "topic": {},
        "broker": {},
    }
    before: dict[str, dict[str, str]] = {"topic": {}, "broker": {}}
    for number in RELEASES:
        name = ".".join(number.split(".")[:2])
        release = read_release(number, scratch / number)
        for scope, last in before.items():
            settings = release.settings[scope]
            changed: dict[str, str | None] = {
                key: value for key, value in settings.items() if last.get(key) != value
            }
            table[scope][name] = changed | dict.fromkeys(last.keys() - settings.keys())
            before[scope] = settings
        groups = release.settings["group"].items()
        table["other"] |= {key: value.partition(" ")[0] for key, value in groups}
        table["metadata_versions"][name] = release.metadata_versions
    table["ordered"] = [
        [name for setting in pair for name in (setting, int(release.defaults[setting]))]
        for pair in ordered(set(release.defaults))
    ]
    layouts = json.loads((folder / "schemas.json").read_text())
    return {
        "releases.json": json.dumps(table, indent=0, sort_keys=True) + "\n",
        "schemas.json": schemas.text_of(schemas.updated(layouts, release.messages, number)),
    }


if __name__ == "__main__":
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as jars_of_releases:
        for file, text in made(target, Path(jars_of_releases)).items():
            (target / file).write_text(text)
