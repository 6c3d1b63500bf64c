"""Steps of loading that meet a segment whose offsets overflow: it is split, and they begin again.

Source: Kafka `LogLoader.retryOnOffsetOverflow`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from kseg.errors import OffsetOverflowError
from kseg.files.grammar import offset_from_file_name
from kseg.log.splitting import SplitPlan, apply_split, plan_split
from kseg.log.workbench import INDEX, LOG, SNAPSHOT, TIMEINDEX, TXNINDEX, file_of

if TYPE_CHECKING:
    from kseg.log.workbench import Bench

_T = TypeVar("_T")
#: Each split leaves one segment less that overflows, unless something is very wrong.
_SPLITS_MAX: Final = 10_000
_INT32_MAX: Final = 2**31 - 1


def retried(bench: Bench, step: Callable[[], _T]) -> _T:
    """Take a step, splitting each segment that it finds overflowed.

    Raises:
        OffsetOverflowError: a segment overflows that cannot be split.
    """
    for _ in range(_SPLITS_MAX):
        try:
            return step()
        except OffsetOverflowError as error:
            _split(bench, error)
    raise OffsetOverflowError("splits do not come to an end", path=bench.scene.directory)


def _split(bench: Bench, error: OffsetOverflowError) -> None:
    name = str(error.path).rpartition("/")[2]
    base = offset_from_file_name(name)
    scene = bench.scene
    file = scene.files.get(file_of(base, LOG))
    if file is None or file.part or file.data is not None or not overflows(bench, base):
        raise error
    try:
        plan = plan_split(file.source, as_broker=bench.inputs.as_broker)
    except ValueError:
        raise error from None
    if plan.size != file.size:
        raise error
    bases = [piece.base_offset for piece in plan.pieces]
    if bases == [base]:
        raise error
    known = base in bench.bases
    bench.bases = [kept for kept in bench.bases if kept != base]
    bench.outcomes.pop(base, None)
    _replace(bench, plan, base, bases)
    for piece in bases if known else ():
        bench.add(piece)


def _replace(bench: Bench, plan: SplitPlan, base: int, bases: list[int]) -> None:
    """Put the pieces into the segment's place."""
    scene = bench.scene
    bench.known_snapshots = None
    if scene.hands is not None:
        scene.hands.mended = True
        apply_split(plan, config=bench.inputs.config)
        scene.look_again()
        return
    for kind in (INDEX, TIMEINDEX, TXNINDEX, *([] if base in bases else [SNAPSHOT])):
        old = file_of(base, kind)
        if old in scene.files:
            scene.remove(old, "its segment is split", keep=True)
    parts = [(file_of(p.base_offset, LOG), p.start, p.end) for p in plan.pieces]
    scene.split(file_of(base, LOG), parts, "offsets overflow")
    for piece in bases:
        for kind in (INDEX, TIMEINDEX):
            scene.put(file_of(piece, kind), b"", "offsets overflow", held=False)


def overflows(bench: Bench, base: int) -> bool:
    """Whether a segment's last batch has no 32-bit offset, as a split is to mend it.

    One in the middle of others that have, or that reaches into the segments behind, is no overflow,
    but wrong. Kafka splits there all the same; it fails if the log does not end with a whole batch.

    Source: Kafka `LogSegment.hasOverflow`.
    """
    last, table = base, None
    with bench.open(base) as segment:
        for tile in segment.walk(on_bad_crc="ignore", policy="file"):
            table = tile.table
            if len(table):
                last = int(table.last_offset[-1])
        whole = table is not None and table.end_position == segment.size
    if last <= base + _INT32_MAX:
        return False
    if bench.inputs.as_broker:
        return whole
    return not any(base < other <= last for other in bench.bases)


__all__ = ["overflows", "retried"]
