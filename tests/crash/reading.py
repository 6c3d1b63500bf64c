"""What lies in the files of a log, batch by batch, read by nothing of kseg's."""

from __future__ import annotations

import os
import struct

import google_crc32c

from tests.crash.history import Found, Ident, ViolationError
from tests.crash.states import Contents

_HEAD = struct.Struct(">qiibI")
_LEAST = 61
_START_FILE = "log-start-offset-checkpoint"


def ident(data: bytes, base_offset: int) -> Ident:
    """Of a batch that lies at an offset."""
    (delta,) = struct.unpack_from(">i", data, 23)
    (crc,) = struct.unpack_from(">I", data, 17)
    return Ident(base_offset, base_offset + delta, crc)


def batches_of(data: bytes) -> tuple[list[Ident], int]:
    """The whole sound batches at the front of a log file, and where they end."""
    position, found = 0, []
    while len(data) - position >= _LEAST:
        base, length, _epoch, magic, crc = _HEAD.unpack_from(data, position)
        end = position + 12 + length
        if length < 49 or end > len(data) or magic != 2:
            break
        if google_crc32c.value(data[position + 21 : end]) != crc:
            break
        found.append(ident(data[position : position + _LEAST], base))
        position = end
    return found, position


def logs_of(contents: Contents, partition: str) -> dict[int, bytes]:
    """Base offset -> bytes of each log file, rising."""
    prefix = f"{partition}/"
    names = [path for path in contents if path.startswith(prefix) and path.endswith(".log")]
    return {int(path[len(prefix) : -4]): contents[path] or b"" for path in sorted(names)}


def settled(contents: Contents, partition: str) -> Contents:
    """The files as a start takes them: complete `.swap` files replace what lies in their range.

    Source: Kafka `LogLoader.load`, its three passes over temporary files.
    """
    prefix = f"{partition}/"
    offsets = {
        path: int(path[len(prefix) :].partition(".")[0])
        for path in contents
        if path.startswith(prefix) and path[len(prefix) : len(prefix) + 20].isdigit()
    }
    unfinished = [at for path, at in offsets.items() if path.endswith(".cleaned")]
    swaps = {path for path, at in offsets.items() if path.endswith(".swap")}
    swaps = {path for path in swaps if offsets[path] < min(unfinished, default=2**63)}
    logs = [path for path in swaps if path.endswith(".log.swap")]
    start = min((offsets[path] for path in logs), default=0)
    end = start
    for path in logs:
        found = batches_of(contents[path] or b"")[0]
        end = max(end, found[-1].last_offset + 1 if found else offsets[path])
    gone = (".cleaned", ".swap", ".deleted")
    kept = {
        path: data
        for path, data in contents.items()
        if not (path in offsets and (path.endswith(gone) or start <= offsets[path] < end))
    }
    return kept | {path.removesuffix(".swap"): contents[path] for path in swaps}


def found_in(contents: Contents, partition: str, *, whole: bool = True) -> Found:
    """What a log holds; with `whole`, every byte of it must be a batch, as after recovery."""
    logs = logs_of(contents, partition)
    batches: list[Ident] = []
    end = 0
    for base, data in logs.items():
        some, position = batches_of(data)
        if whole and data[position:].strip(b"\0"):
            raise ViolationError(f"segment {base} is no row of batches from {position} on")
        if some and (some[0].base_offset < base or base < end):
            raise ViolationError(f"segment {base} begins with {some[0]}, behind {end}")
        batches += some
        end = some[-1].last_offset + 1 if some else max(base, end)
    start = max(min(logs, default=0), checkpoint_of(contents, partition, _START_FILE))
    return Found(tuple(one for one in batches if one.last_offset >= start), start, max(end, start))


def checkpoint_of(contents: Contents, partition: str, file: str) -> int:
    """The offset that a checkpoint of the data directory has for a log; 0 for none."""
    name = os.path.split(partition)
    data = contents.get(os.path.join(name[0], file)) or b""
    topic, _, number = name[1].rpartition("-")
    for line in data.decode().splitlines()[2:]:
        if line.split()[:2] == [topic, number]:
            return int(line.split()[2])
    return 0
