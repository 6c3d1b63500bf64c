"""What the fixtures expect, in the words of `kseg dump`, whichever release wrote them down.

`old/` has plain JSON lines with few fields, `new/` gzipped ones with all of them; see
`tests/data/fixtures/ORIGIN.md`. Bytes are bytes here.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Fields = dict[str, Any]

#: Name there -> name here; names that are the same are not listed.
BATCH_NAMES = {"partition_leader_epoch": "leader_epoch", "record_count": "count", "valid": "crc_ok"}
#: What `new/` says of a batch that a reader's answer has no twin for.
NO_TWIN = {
    "dir",
    "file",
    "raw_offset",
    "raw_length",
    "raw_timestamp",
    "raw_max_timestamp",
    "last_offset_delta",
    "next_offset",
    "header_error",
    "records_read",
    "error",
}


@dataclass(slots=True)
class Expected:
    """One log file: batches in order, and each batch's records by its position.

    `read_to` is where the broker's reader stopped, None if the fixture does not say; `refused`
    holds Kafka's error for a batch by its position; `complete` is false if damage hides the rest.
    """

    path: Path
    read_to: int | None = None
    batches: list[Fields] = field(default_factory=list)
    records: dict[int, list[Fields]] = field(default_factory=lambda: defaultdict(list))
    refused: dict[int, str] = field(default_factory=dict)
    complete: bool = True

    @property
    def kafka07(self) -> bool:
        """Only the name tells: Kafka 0.7's segments end in `.kafka`."""
        return self.path.suffix == ".kafka"


def lines(path: Path) -> list[Fields]:
    """JSON lines, gzipped or not; none where there is no such file."""
    if not path.exists():
        return []
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


def unbase64(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def record_fields(line: Fields) -> Fields:
    """One line of records.jsonl without the names of its place."""
    fields = {name: value for name, value in line.items() if name not in ("dir", "file")}
    fields["key"], fields["value"] = unbase64(line["key"]), unbase64(line["value"])
    if "headers" in line:
        fields["headers"] = [(name, unbase64(value)) for name, value in line["headers"]]
    if line["timestamp"] is None:
        fields["timestamp"], fields["timestamp_type"] = -1, "NoTimestampType"
    fields.pop("index_in_wrapper", None)
    return fields


def expectations(case: Path) -> list[Expected]:
    """Every log file of a case folder that the case says something about."""
    return new_files(case) if (case / "files.jsonl.gz").exists() else old_files(case)


def new_files(case: Path) -> list[Expected]:
    files: dict[tuple[str, str], Expected] = {}
    for line in lines(case / "files.jsonl.gz"):
        place = line["dir"], line["file"]
        files[place] = Expected(case / place[0] / place[1], read_to=line["read_to"])
    for line in lines(case / "batches.jsonl.gz"):
        expected = files[line["dir"], line["file"]]
        if line["error"] is not None:
            expected.refused[line["position"]] = line["error"]
        batch = {BATCH_NAMES.get(k, k): v for k, v in line.items() if k not in NO_TWIN}
        if line["magic"] < 2 and line.get("codec") != "none":
            batch.pop("base_offset", None)  # only the inner messages tell
        expected.batches.append(batch)
    for line in lines(case / "records.jsonl.gz"):
        files[line["dir"], line["file"]].records[line["position"]].append(record_fields(line))
    return list(files.values())


def old_files(case: Path) -> list[Expected]:
    facts = json.loads((case / "case.json").read_text())
    folder = case / facts.get("real_directory_name", f"{facts['topic']}-{facts['partition']}")
    stopped = {stop["file"] for stop in facts.get("reader_stopped") or []}
    files = {
        path.name: Expected(path, complete=path.name not in stopped)
        for path in sorted([*folder.glob("*.log"), *folder.glob("*.kafka")])
    }
    for line in lines(case / "batches.jsonl"):
        files[line["file"]].batches.append(
            {
                "position": line["position"],
                "size": line["size"],
                "last_offset": line["offset"],
                "magic": line["magic"],
                "codec": line["codec"],
                "max_timestamp": line.get("timestamp", -1),
                "timestamp_type": line.get("timestamp_type", "NoTimestampType"),
                "crc_ok": True,
            }
        )
    for line in lines(case / "records.jsonl"):
        files[line["file"]].records[line["position"]].append(record_fields(line))
    return list(files.values())
