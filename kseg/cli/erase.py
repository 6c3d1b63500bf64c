"""`kseg erase`: records with some keys, or at some offsets, gone from closed logs.

`--check` compares the report of an earlier run with the logs as they are now.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import click

from kseg.catalog import partition_at
from kseg.change.erase import ErasurePlan, compare_digests, digests, plan_erasure
from kseg.change.run import DAMAGE, run
from kseg.cli import output
from kseg.cli.closed import change_of, report, report_lost_mark, share_out
from kseg.cli.failures import Exit, complain, one_line, usage_errors
from kseg.cli.options import CommandSettings, Paths
from kseg.cli.paths import catalog_of, data_directories, known_configs
from kseg.commands import command_line, printable
from kseg.constants import Progress
from kseg.documents import fields_of
from kseg.errors import KsegError
from kseg.files.names import Partition
from kseg.files.selection import Selection
from kseg.log.topic_policy import is_internal

#: Where the same records may lie, and nothing was searched.
_ELSEWHERE: Final = (
    "other replicas of these partitions, which bring the records back when they lead",
    "a tier, backups, and snapshots of disks",
    "the stores of consumers, and topics that were made from these",
    "free blocks of the disk",
)
_ENCODINGS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "text": bytes,
    "hex": binascii.unhexlify,
    "base64": partial(base64.b64decode, validate=True),
}


def erase(
    directories: Paths,
    report_file: str | None,
    secret_file: str | None,
    selection: Selection,
    command_settings: CommandSettings,
    jobs: int,
    apply: bool,
    backup_dir: str | None,
    as_json: bool,
    **asked: Any,
) -> int:
    """Run `kseg erase`; returns the exit code."""
    options = change_of(
        command_settings, apply=apply, backup_dir=backup_dir, no_backup=backup_dir is None
    )
    with usage_errors():
        targets = _targets(**asked)
    secret = None if secret_file is None else Path(secret_file).read_bytes()
    directories, command_settings = data_directories(directories, command_settings)
    catalog = catalog_of(directories, selection, strict=True)
    partitions = _with_set_aside(_of_producers(catalog.partitions))
    if report_file is not None and not (targets["keys"] or targets["null_key"]):
        return _check(Path(report_file), partitions, as_json=as_json)
    if targets["offsets"] is not None and len(partitions) > 1:
        raise click.UsageError("An offset belongs to one partition: name it, or give --partition.")
    configs = known_configs(partitions, command_settings, directories)
    plan_at: Any = partial(plan_erasure, **targets, now=options.now_ms, threads=jobs)
    with usage_errors():
        plans, damage = _planned(
            partitions, lambda path, bar: plan_at(path, config=configs[path], progress=bar)
        )
    if report_file is not None:
        return _check(Path(report_file), partitions, plans, as_json=as_json)
    before = {plan.path: digests(plan.path) for plan in plans} if as_json else {}
    going = [plan for plan in plans if plan.refused is None]
    reports = run(
        going,
        options,
        lambda plan, path: plan_at(path, config=plan.config),
        share=partial(share_out, verb="erase", jobs=1),
        on_lost_mark=report_lost_mark,
    )
    _say_refusals(plans, damage)
    is_found = any(plan.segments for plan in going)
    if not (as_json or is_found):
        output.write_line("no such record, nothing to do")
        return Exit.FOUND
    if not as_json:
        output.write_lines(plan.title for plan in going if plan.segments)
        output.write_lines(("not searched:", *(f"    {place}" for place in _ELSEWHERE)))
    code = report(
        "erase",
        output.path_field(directories),
        options,
        reports,
        actions=[action for done in reports for action in done.plan.actions],
        remedy="--apply does it",
        as_json=as_json,
        null_key=targets["null_key"],
        offsets=None if asked["offset"] is None else list(asked["offset"]),
        tombstones=targets["tombstones"],
        keys=[] if secret is None else _digests(targets["keys"], secret),
        records=sum(plan.records for plan in going),
        partitions=[_document(plan, before.get(plan.path, {}), apply) for plan in plans],
        findings=[one_line(error) for error in damage],
        not_searched=list(_ELSEWHERE),
    )
    if any(done.kept for done in reports):
        complain(f"kseg: {backup_dir} is a copy of what was erased: remove it, too")
    return Exit.FOUND if damage or len(going) < len(plans) or not is_found else code


def _targets(
    keys: tuple[bytes, ...],
    keys_file: str | None,
    encoding: str,
    offset: tuple[int | None, int | None] | None,
    **targets: Any,
) -> dict[str, Any]:
    """The records that are erased, as arguments of `plan_erasure`.

    Raises:
        UsageError: the file of keys is empty, or malformed.
        ValueError: the range of offsets lacks an end.
    """
    from_file = [] if keys_file is None else _keys_of(Path(keys_file), encoding)
    offsets = None
    if offset is not None:
        first, end = offset
        if first is None or end is None:
            raise ValueError("--offset names both ends here: A..B, or one offset")
        offsets = range(first, end)
    return {"keys": [*keys, *from_file], "offsets": offsets, **targets}


def _digests(keys: Sequence[bytes], secret: bytes) -> list[str]:
    return [hmac.digest(secret, key, sha256).hex() for key in keys]


def _keys_of(path: Path, encoding: str) -> list[bytes]:
    """The keys in a file, one a line.

    Raises:
        UsageError: it has none, or a line is not in the encoding.
    """
    decoded = _ENCODINGS[encoding]
    lines = path.read_bytes().split(b"\n")
    keys = []
    for number, line in enumerate(lines, 1):
        text = line.removesuffix(b"\r")
        if not text:
            continue
        with usage_errors(f"{path}, line {number}: not {encoding}"):
            keys.append(decoded(text))
    if not keys:
        raise click.UsageError(f"{path} has no keys: nothing would be erased.")
    return keys


def _of_producers(partitions: Sequence[Partition]) -> list[Partition]:
    """The partitions without those of Kafka's own topics, if there are others; says which."""
    if len(partitions) == 1:
        return list(partitions)
    of_kafka = dict.fromkeys(
        str(partition.topic) for partition in partitions if is_internal(str(partition.topic))
    )
    if of_kafka:
        complain(f"kseg: left as they are: {', '.join(of_kafka)}: topics of Kafka itself")
    return [partition for partition in partitions if partition.topic not in of_kafka]


def _with_set_aside(partitions: Sequence[Partition]) -> list[Partition]:
    """The partitions, and behind each the directories of it that a broker has put aside."""
    set_aside: dict[Path, list[Path]] = {}
    for home in {partition.path.parent for partition in partitions if partition.name is not None}:
        for path in sorted(home.iterdir()):
            set_aside.setdefault(home / path.name.rpartition(".")[0], []).append(path)
    by_path: dict[Path, Partition] = {}
    for partition in partitions:
        by_path[partition.path] = partition
        for other in map(partition_at, set_aside.get(partition.path, ())):
            if other.kind is not None:
                by_path.setdefault(other.path, other)
    return list(by_path.values())


def _planned(
    partitions: Sequence[Partition], plan_at: Callable[[Path, Progress], ErasurePlan]
) -> tuple[list[ErasurePlan], list[KsegError]]:
    """The plan of each partition, and the damage for which others have none."""
    plans = list[ErasurePlan]()
    damage = list[KsegError]()
    for partition in partitions:
        with output.progress(f"erase {partition.path.name}", 0, in_bytes=True) as bar:
            try:
                plans.append(plan_at(partition.path, bar.to))
            except DAMAGE as error:
                damage.append(error)
    return plans, damage


def _say_refusals(plans: Sequence[ErasurePlan], damage: Sequence[KsegError]) -> None:
    """Name the partitions from which nothing is erased, with the reason."""
    for plan in plans:
        if plan.refused is not None:
            complain(f"kseg: left as it is: {plan.path}: {plan.refused}")
    for error in damage:
        salvage = command_line("kseg", "salvage", str(Path(error.path or "").parent), "-o", "OUT")
        complain(
            f"kseg: left as it is: {one_line(error)}; first make a sound copy:", f"    {salvage}"
        )


def _document(
    plan: ErasurePlan, before: Mapping[str, tuple[int, str]], applied: bool
) -> dict[str, Any]:
    """A partition in the document."""
    after = digests(plan.path) if applied and before else before
    return {
        **fields_of(partition_at(plan.path), "path topic partition"),
        **fields_of(plan, "refused records rolls"),
        "segments": [
            fields_of(
                segment,
                "base_offset bytes=size records record_bytes first_offset last_offset",
            )
            for segment in plan.segments
        ],
        "files": [
            {
                "name": name,
                **_digest("before", before.get(name)),
                **_digest("after", after.get(name)),
            }
            for name in sorted(before.keys() | after.keys())
        ],
    }


def _digest(when: str, state: tuple[int, str] | None) -> dict[str, Any]:
    size, digest = state or (None, None)
    return {f"bytes_{when}": size, f"sha256_{when}": digest}


# ---- a report, and the logs now ------------------------------------------------------------------


def _check(
    path: Path,
    partitions: Sequence[Partition],
    plans: Sequence[ErasurePlan] = (),
    *,
    as_json: bool,
) -> int:
    """Compare segments with a report; says with `plans` whether the records are back."""
    then = _read_report(path)
    rows = [
        {"path": str(partition.path), "segment": name, "state": state}
        for partition in partitions
        if partition.path.name in then
        for name, state in compare_digests(then[partition.path.name], partition.path)
    ]
    unknown = [partition.path for partition in partitions if partition.path.name not in then]
    back = [plan for plan in plans if plan.segments]
    if as_json:
        document = {
            "report": str(path),
            "segments": rows,
            "unknown": [str(path) for path in unknown],
            "records_back": sum(plan.records for plan in back) if plans else None,
        }
        output.write_document("erase-check/1", document)
    else:
        output.write_columns(("state", "segment", "path"), rows)
        output.write_lines(f"not in the report: {printable(str(path))}" for path in unknown)
        output.write_lines(f"the records are back: {plan.title}" for plan in back)
    return Exit.FOUND if back or unknown else Exit.OK


def _read_report(path: Path) -> dict[str, dict[str, tuple[int, str]]]:
    """The segments of each partition directory after an erasure: bytes and digests by name.

    Raises:
        UsageError: the file is no report of `kseg erase --apply --json`.
    """
    by_directory = dict[str, dict[str, tuple[int, str]]]()
    with suppress(KeyError, TypeError, RecursionError, json.JSONDecodeError, UnicodeDecodeError):
        document = json.loads(path.read_bytes())
        for partition in document["partitions"] if document["schema"] == "kseg.erase/1" else ():
            files = by_directory[os.path.basename(partition["path"])] = {}
            for file in partition["files"]:
                if isinstance(file["bytes_after"], int):
                    files[str(file["name"])] = (file["bytes_after"], str(file["sha256_after"]))
    if not any(by_directory.values()):
        raise click.UsageError(
            f"{path} is not a report that 'kseg erase --apply --json' has written."
        )
    return by_directory
