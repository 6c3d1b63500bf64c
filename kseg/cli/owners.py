"""The command that gives new files to the user whose logs they were made of, for verbs' last lines.

Root gives them itself; any other user cannot, so a broker cannot write to them before root does.
"""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterator

from kseg.commands import command_line
from kseg.files import ownership


def owner_lines(
    made: str | os.PathLike[str],
    source: str | os.PathLike[str],
    *places: str | os.PathLike[str],
) -> Iterator[str]:
    """Lines with the command for root; none if the owner and group are those of the source.

    Args:
        made: something new.
        source: the log or partition directory that it was made of.
        places: what is to be given away, with all that is in it.
    """
    status, wanted = os.stat(made), ownership.owner_of(source)
    if (status.st_uid, status.st_gid) == wanted:
        return
    mine, owner = _user(status.st_uid), _user(wanted[0])
    yield f"the new files belong to {mine}, not to {owner}; this, run as root, gives them away:"
    yield command_line("chown", "-R", f"{owner}:{_group(wanted[1])}", *places)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


__all__ = ["owner_lines"]
