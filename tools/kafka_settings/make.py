"""Make `kseg/internal/config_types.json` from the classes of Kafka's releases, which Maven brings.

    python tools/kafka_settings/make.py kseg/internal/config_types.json

Needs mvn and a JDK. The file has, for topics and for brokers, each setting with its type and its
check, `TYPE CHECK`. The first release has all settings; each later one has those that differ from
the release before it, null for a setting that went. A check is a range `LEAST..MOST`, with `,VALUE`
where one value beside the range is allowed, or the allowed words `A|B`. `other` has the names of
groups, client metrics and quotas by type; it stays as it is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

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


def definitions(release: str, folder: Path) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The settings of a release: scope, name, `TYPE CHECK`; and the defaults of a broker's."""
    folder.mkdir()
    (folder / "pom.xml").write_text(_POM.format(release))
    run = ("mvn", "-q", "--batch-mode", "-f", folder / "pom.xml")
    jars = folder / "jars"
    subprocess.run(
        [
            *run,
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={jars}",
        ],
        check=True,
    )
    source = Path(__file__).with_name("ConfigDefs.java")
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", folder, source], check=True)
    lines = subprocess.run(
        ["java", "-cp", f"{folder}:{jars}/*", "ConfigDefs"],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    ).stdout.splitlines()
    found: dict[str, dict[str, str]] = {"topic": {}, "broker": {}}
    defaults: dict[str, str] = {}
    for line in lines:
        scope, name, kind, default, *validator = line.split("\t")
        check = _check(*validator) if len(validator) == 2 else ""
        if scope == "broker":
            check = VALIDATED.get(name, check)
            defaults[name] = default
        found[scope][name] = f"{kind} {check}".strip()
    return found, defaults


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


def main(target: Path) -> None:
    """Write the file."""
    table = {"other": json.loads(target.read_text())["other"], "topic": {}, "broker": {}}
    before: dict[str, dict[str, str]] = {"topic": {}, "broker": {}}
    with tempfile.TemporaryDirectory() as scratch:
        for release in RELEASES:
            name = ".".join(release.split(".")[:2])
            found, defaults = definitions(release, Path(scratch, release))
            for scope, settings in found.items():
                last = before[scope]
                changed: dict[str, str | None] = {
                    key: value for key, value in settings.items() if last.get(key) != value
                }
                table[scope][name] = changed | dict.fromkeys(last.keys() - settings.keys())
            before = found
    table["ordered"] = [
        [name for setting in pair for name in (setting, int(defaults[setting]))]
        for pair in ordered(set(defaults))
    ]
    target.write_text(json.dumps(table, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
