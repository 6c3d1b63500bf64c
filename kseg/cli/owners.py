"""Lines about files that verbs make: how they get to their place, and to their owner."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from kseg.commands import command_line
from kseg.constants import StrPath
from kseg.files import ownership
from kseg.files.atomic import replace_file
from kseg.log.salvage import PUT_BACK

if TYPE_CHECKING:
    from kseg.files.checkpoints import TopicPartition

#: The most items of one kind that are printed; --json lists more.
ITEMS_MAX: Final = 5


def more_line(count: int, noun: str) -> Iterator[str]:
    """A line with the number of items that are not printed, if there are any."""
    if count > ITEMS_MAX:
        yield f"{count - ITEMS_MAX} more {noun}"


def put_back(replaced: Sequence[tuple[str, Path]], out: Path, beside: Path) -> Iterator[str]:
    """The steps that put logs from OUT into the place of damaged ones, in their order.

    Many steps go into a script beside the report.

    Args:
        replaced: the name of each, and the directory that it replaces.
        out: the new data directory.
        beside: the directory beside it, which takes the damaged ones.
    """
    if not replaced:
        return
    name, path = replaced[0]
    yield from owner_lines(out / name, path, out)
    yield "to put it back, stop the broker, then:"
    replaced_logs = beside.resolve() / "replaced"
    home = out.resolve()
    moves = [(path.resolve(), home / name) for name, path in replaced]
    if len(moves) > ITEMS_MAX:
        script = beside.resolve() / PUT_BACK
        replace_file(
            script, "".join(f"{line}\n" for line in _script(moves, replaced_logs)).encode()
        )
        yield f"  sh {quote(str(script))}"
    else:
        yield from (f"  {line}" for line in _steps(moves, replaced_logs))
    yield (
        "the lines of the broker's checkpoints may stay, but for a log start behind the end of the "
        "log; the checkpoints in OUT are for a broker that gets all of OUT"
    )


def _steps(moves: Sequence[tuple[Path, Path]], aside: Path) -> Iterator[str]:
    yield f"mkdir -p {quote(str(aside))}"
    for damaged, made in moves:
        yield f"mv {quote(str(damaged))} {quote(str(aside))}/"
        yield f"mv {quote(str(made))} {quote(str(damaged))}"


def _script(moves: Sequence[tuple[Path, Path]], aside: Path) -> Iterator[str]:
    """The steps, behind a check that each directory is where the steps want it."""
    yield f"# Puts {len(moves)} logs back. Stop the broker first."
    yield "set -eu"
    yield 'fail() { echo "$1: nothing was moved" >&2; exit 1; }'
    for damaged, made in moves:
        for path in (damaged, made):
            yield f"test -d {quote(str(path))} || fail {quote(f'{path} is missing')}"
        old = aside / damaged.name
        yield f"test ! -e {quote(str(old))} || fail {quote(f'{old} is there already')}"
    yield from _steps(moves, aside)


def without_line(path: Path, partition: TopicPartition) -> str:
    """A command that removes the line of a partition from a checkpoint of offsets."""
    entry = f"{partition.topic} {partition.partition} "
    lines = path.read_text().splitlines()[2:]
    count = sum(bool(line.strip()) and not line.startswith(entry) for line in lines)
    topic = partition.topic.replace(".", "[.]")
    script = f"2s/.*/{count}/;/^{topic} {partition.partition} /d"
    return f"sed -i {quote(script)} {quote(str(path))}"


def owner_lines(
    made: StrPath,
    source: StrPath,
    *places: StrPath,
) -> Iterator[str]:
    """Lines with a command for root; empty if owner and group are those of the source.

    The command gives new files to the user who owns the source logs. Root gives them itself; any
    other user cannot, so a broker cannot write to them before root does.

    Args:
        made: something new.
        source: the log or partition directory that it was made from.
        places: files and directories to give away, with their contents.
    """
    status = os.stat(made)
    owner_ids = ownership.owner_of(source)
    if (status.st_uid, status.st_gid) == owner_ids:
        return
    mine = _name(pwd.getpwuid, status.st_uid)
    owner = _name(pwd.getpwuid, owner_ids[0])
    yield f"the new files belong to {mine}, not to {owner}; this, run as root, gives them away:"
    yield command_line("chown", "-R", f"{owner}:{_name(grp.getgrgid, owner_ids[1])}", *places)


def _name(find: Callable[[int], Any], number: int) -> str:
    """The name of a user or a group, or its number where it has no name."""
    try:
        return str(find(number)[0])
    except KeyError:
        return str(number)
