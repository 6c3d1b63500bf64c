"""What kseg's own way of loading must leave of a damaged log, by another reader than its own.

The front of the log, up to the first byte that is wrong, stays where it is. What goes is kept
aside, byte for byte. Of the segments that were walked `verify --deep` has nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kseg.analysis.verify import verify
from kseg.log.recovery import load
from kseg.log.recovery.load_context import LOG, SNAPSHOT, SegmentOutcome, file_of
from kseg.log.recovery.recover import RecoveryPlan
from tests.reference import Batch, walk

#: Leftovers and findings after which other files than before make up the log.
_REPLACED = (".swap",)
_ANEW = "log-start-ahead"

Logs = dict[str, bytes]


def logs_in(directory: Path) -> Logs:
    """The log files of a directory, by their names."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob(f"*.{LOG}"))}


def check(
    before: Logs, plan: RecoveryPlan, directory: Path, kept: Path, *, live_start: int = 0
) -> None:
    """Compare a directory that was mended with what it held.

    Args:
        before: its logs.
        plan: what was done.
        directory: as it is now.
        kept: where is kept what went.
        live_start: where the log started in its life, though it may be loaded from further down.

    Raises:
        AssertionError: something is lost, or wrong still.
    """
    after = logs_in(directory)
    if not any(name.endswith(_REPLACED) for name in plan.temporary_files):
        segments = {_name_of(name, before): data for name, data in before.items()}
        for name, data in segments.items():
            _check_kept(name, data, after.get(name, b""), kept)
        if not any(found.code == _ANEW for found in plan.findings):
            _check_front(segments, after)
    _check_verified(plan, directory, max(plan.log_start_offset, live_start))


def _name_of(name: str, names: Logs) -> str:
    """What a log is called afterwards: by 20 digits, unless another log is."""
    stem = name.removesuffix(f".{LOG}")
    full = file_of(int(stem), LOG) if stem.isdigit() else name
    return name if full in names else full


def _check_kept(name: str, data: bytes, left: bytes, kept: Path) -> None:
    """The rest of a log lies aside: its end as it was cut off, its front if all of it went."""
    assert data.startswith(left), f"{name} holds other bytes than before"
    there = bytearray(left.ljust(len(data), b"\0"))
    for path in kept.rglob(f"{name}*"):
        position = path.name.removeprefix(name).removeprefix(".from-")
        piece, start = path.read_bytes(), int(position or 0)
        there[start : start + len(piece)] = piece
    assert there == data, f"some of the {len(data) - len(left)} bytes gone of {name} are nowhere"


def _check_front(segments: Logs, after: Logs) -> None:
    """All is there up to the first byte that is wrong."""
    end = -1
    for name, data in sorted(segments.items()):
        if not name.partition(".")[0].isdigit():
            continue
        position = 0
        for batch in _sound(data, max(int(name.partition(".")[0]), end)):
            position, end = batch.position + batch.size, batch.last_offset + 1
        assert after.get(name, b"").startswith(data[:position]), (
            f"{name} is sound up to {position}, and {len(after.get(name, b''))} bytes of it stay"
        )
        if position < len(data):
            return


def _sound(data: bytes, offset: int) -> Iterator[Batch]:
    """The batches at the front that nobody can find fault with, from an offset on."""
    base = offset
    for batch in walk(data).batches:
        first = batch.base_offset if batch.magic >= 2 else batch.last_offset
        whole = batch.crc_ok and (batch.magic < 2 or batch.size >= 61)
        if not (whole and base <= first <= batch.last_offset < offset + 2**31):
            return
        yield batch
        base = batch.last_offset + 1


def _check_verified(plan: RecoveryPlan, directory: Path, start: int) -> None:
    """What was walked is in order, beginning behind a segment that was not.

    What lies over segments behind it and is sound stays, and the plan says so. A log of a negative
    base offset stays, too, and is no segment; `verify` holds the others against it.

    Snapshots are made where the walk begins and from there on, and not where an index alone was
    rebuilt. A transaction that is open where the log started has its beginning in front of that:
    a load behind that start forgets it, and `verify`, which reads all files, does not.
    """
    there = [one for one in plan.segments if not one.goes]
    walked = {file_of(one.base_offset, ""): one for one in there if one.walked}
    over = {Path(found.path).name for found in plan.findings if found.code == "offset-order"}
    begins, reached = set(), max(map(_last_offset, directory.glob(f"-*.{LOG}")), default=-1)
    farthest: SegmentOutcome | None = None  # of those in front: it may lie over more than the next
    for one in there:
        if not (farthest and farthest.walked and file_of(farthest.base_offset, LOG) not in over):
            begins.add(("offset-order", file_of(one.base_offset, LOG), 0))
        if (last := _last_offset(directory / file_of(one.base_offset, LOG))) >= reached:
            farthest, reached = one, last
    wrong = []
    for found in verify(directory, deep=True).findings:
        name = Path(found.path).name
        segment = walked.get(f"{name.partition('.')[0]}.")
        if found.severity != "error" or segment is None:
            continue
        if found.code.startswith("txn-index") and _is_in_front(
            found.offset or 0, plan.log_start_offset, directory
        ):
            continue  # no reader comes there: a load goes by the log's start
        if found.code == "txn-index-order" and _is_one_open_at(start, directory):
            continue
        remade = not name.endswith(f".{SNAPSHOT}") or segment.why == load.WALKED
        if remade and (found.code, name, found.position) not in begins:
            wrong.append(found)
    assert not wrong, wrong


def _last_offset(path: Path) -> int:
    """The offset that a log ends with, -1 for none."""
    batches = walk(path.read_bytes()).batches
    return batches[-1].last_offset if batches else -1


def _is_one_open_at(start: int, directory: Path) -> bool:
    """Whether a transaction that begins in front of an offset ends at it or behind."""
    begun: set[int] = set()
    for _, data in sorted(logs_in(directory).items()):
        for one in walk(data).batches:
            if one.is_transactional and one.base_offset < start:
                (begun.discard if one.is_control else begun.add)(one.producer_id)
    return bool(begun)


def _is_in_front(marker: int, start: int, directory: Path) -> bool:
    """Whether a marker, by its offset, or all that it decides on lies in front of the start."""
    batches = [one for data in logs_in(directory).values() for one in walk(data).batches]
    deciding = {one.producer_id for one in batches if one.is_control and one.base_offset == marker}
    return marker < start or not any(
        one.is_transactional and not one.is_control and start <= one.last_offset < marker
        for one in batches
        if one.producer_id in deciding
    )


__all__ = ["check", "logs_in"]
