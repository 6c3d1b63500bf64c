"""Temporary files: clears away what an interrupted deletion, compaction or split left.

    S.log.deleted   deleted; to be removed                            any file may be called so
    S.log.cleaned   not finished; the files it was made from are there
    S.log.swap      finished; takes the place of what it was made from, unless something of the same
                    piece of work is not finished: a `.cleaned` at its offset or in front of it

A `.swap` takes the place of all files from its offset up to where its last batch ends. Names become
lasting between the steps, and logs change their names before their indexes do. So a run that begins
again after an interruption comes to the same end.

Source: Kafka `LogLoader.removeTempFilesAndCollectSwapFiles`, `LogLoader.load`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kseg.errors import NotALogError
from kseg.files import io
from kseg.files.grammar import offset_from_file_name, parse_name, split_suffix
from kseg.log.recovery import raw_lookups
from kseg.log.segment.walks import next_offset

if TYPE_CHECKING:
    from kseg.log.recovery.overlay import Overlay

_DELETED: Final = ".deleted"
_CLEANED: Final = ".cleaned"
_SWAP: Final = ".swap"
_LOG: Final = ".log"
#: A KRaft snapshot that was deleted; the raft log removes it.
_KRAFT_DELETED: Final = ".checkpoint.deleted"
_OFFSET_END: Final = 2**63 - 1


def clear(overlay: Overlay, *, careful: bool, index_bytes: int = 0) -> tuple[str, ...]:
    """Remove the temporary files, or let them take their places.

    Args:
        overlay: the partition; changed.
        index_bytes: what an offset index has in full, for a broker.
        careful: remove half-written checkpoints (`.tmp`), and skip names without an offset.
            Otherwise, as in Kafka, the first stay and the second fail. Kafka writes no index or
            snapshot through a `.tmp`; such a file is kseg's own.

    Returns:
        The names of what was found.

    Raises:
        NotALogError: a `.cleaned` or `.swap` file without an offset in its name, for a broker.
        FormatError: a `.swap` log cannot be walked.
        OSError: the disk refuses.
    """
    found = _remove_transient(overlay, careful=careful)
    swaps = _valid_swaps(overlay, found, careful=careful)
    if swaps:
        overlay.settle()
        _make_room(overlay, swaps, careful=careful, index_bytes=index_bytes)
        overlay.settle()
        _take_places(overlay, swaps)
    overlay.settle()
    return tuple(sorted(found))


def _remove_transient(overlay: Overlay, *, careful: bool) -> set[str]:
    """Remove `.deleted` files, and half-written checkpoints and indexes."""
    found = set()
    for name in overlay.names():
        if name.endswith(_DELETED) and not name.endswith(_KRAFT_DELETED):
            overlay.remove(name, "its segment was deleted", keep=False)
        elif _is_half_written(name, careful=careful):
            overlay.remove(name, "not finished", keep=False)
        else:
            continue
        found.add(name)
    return found


def _is_half_written(name: str, *, careful: bool) -> bool:
    """Whether a file was to take the place of another; Kafka does that to checkpoints only."""
    if name == io.ROOM_NAME:
        return careful
    if split_suffix(name)[1] != "tmp":
        return False
    try:
        known = parse_name(name)
    except NotALogError:
        return False
    if known is None:
        return False
    return careful or known.base_offset is not None


def _valid_swaps(overlay: Overlay, found: set[str], *, careful: bool) -> list[str]:
    """The `.swap` files that are complete; the others are removed, and then each `.cleaned`."""
    cleaned = {name: _offset(name, careful) for name in overlay.names() if name.endswith(_CLEANED)}
    swaps = {name: _offset(name, careful) for name in overlay.names() if name.endswith(_SWAP)}
    found.update(cleaned, swaps)
    first = min((offset for offset in cleaned.values() if offset is not None), default=None)
    valid = []
    for name, offset in swaps.items():
        if first is not None and offset is not None and offset >= first:
            overlay.remove(name, "other files that belong to it are not finished", keep=False)
        else:
            valid.append(name)
    overlay.settle()
    for name in cleaned:
        overlay.remove(name, "not finished", keep=False)
    return valid


def _offset(name: str, careful: bool) -> int | None:
    try:
        return offset_from_file_name(name)
    except NotALogError:
        if not careful:
            raise
        return None


def _make_room(overlay: Overlay, swaps: list[str], *, careful: bool, index_bytes: int) -> None:
    """Remove what finished files replace: everything that has an offset of their range."""
    start, end = _OFFSET_END, -_OFFSET_END
    for name in tuple(swaps):
        offset = _offset(name, careful)
        if name.endswith(_LOG + _SWAP) and offset is not None:
            start = min(start, offset)
            end = max(end, _next_offset(overlay, name, careful=careful))
            index = _index_of(name)
            if not careful and index not in overlay.files:
                # Kafka has made it, in looking for the end, and so nothing is missing later on; but
                # all its room counts as entries, and the next append begins another segment.
                overlay.put(index, bytes(index_bytes), "one full of zeros in place of none")
                swaps.append(index)
    for name in overlay.names():
        if name in swaps:
            continue
        offset = _offset(name, careful=True)
        if offset is not None and start <= offset < end:
            overlay.remove(name, "a finished file takes its place", keep=True)


def _next_offset(overlay: Overlay, name: str, *, careful: bool) -> int:
    """The offset behind a finished log."""
    index = _index_of(name)
    with overlay.open_log(name, is_last=True) as segment:
        if not careful:
            entries = overlay.read(index) if index in overlay.files else b""
            return raw_lookups.next_offset(segment, entries)
        return next_offset(segment, segment.base_offset)


def _index_of(name: str) -> str:
    """The offset index of a finished log."""
    return name.removesuffix(_LOG + _SWAP) + ".index" + _SWAP


def _take_places(overlay: Overlay, swaps: list[str]) -> None:
    """Give finished files their plain names, the logs first."""
    why = "finished"
    logs = [name for name in swaps if name.endswith(_LOG + _SWAP)]
    for names in (logs, [name for name in swaps if name not in logs]):
        for name in names:
            target = name.removesuffix(_SWAP)
            if target in overlay.files:
                overlay.remove(target, "a finished file takes its place", keep=True)
                overlay.settle()
            overlay.rename(name, target, why)
        overlay.settle()


__all__ = ["clear"]
