"""Names of new files and directories for other programs: short enough, and escaped as Hive does.

A topic may have 249 characters, and file systems take names of 255 bytes.

Source: Hive `FileUtils.escapePathName`, Spark `ExternalCatalogUtils.escapePathName`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import Final

from kseg.files.metadata import is_of_broker

#: Bytes of a name that file systems take.
NAME_BYTES_MAX: Final = 255
#: The value in a directory's name for records without one, as Hive and Spark have it.
HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
#: The most files of such directories that are open at a time, each with a few MiB of buffer.
OPEN_MAX: Final = 8
_DIGEST_CHARACTERS: Final = 16
_ESCAPED: Final = re.compile(r"""[\x01-\x1f"#%'*/:=?\\\x7f{\[\]^]""")


def refuse_in_data_directory(
    out: str | os.PathLike[str], homes: Collection[Path] = (), *, is_data: bool = False
) -> None:
    """Refuse a place beside the logs of a data directory: no broker starts beside another folder.

    Args:
        out: the place.
        homes: directories that are data directories, whatever is in them.
        is_data: whether the place may be a data directory itself.

    Raises:
        ValueError: it lies in one.
    """
    place = Path(os.path.realpath(out))
    for each in place.parents if is_data else (place, *place.parents):
        if each in homes or is_of_broker(each):
            raise ValueError(
                f"{os.fspath(out)} lies in a data directory, {each}, where it would keep a broker "
                "from a start: name a place outside"
            )


def fitting_name(stem: str, end: str = "", *, bytes_max: int = NAME_BYTES_MAX) -> str:
    """A file name from a stem and an end; a digest replaces the end of a long stem.

    >>> fitting_name("orders-0", ".parquet")
    'orders-0.parquet'
    >>> len(fitting_name("t" * 249 + "-0", ".parquet"))
    255
    """
    name, room = os.fsencode(stem), bytes_max - len(os.fsencode(end))
    if len(name) <= room:
        return stem + end
    digest = sha256(name).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: room - len(digest) - 1].decode(errors='ignore')}-{digest}{end}"


def hive_directory(key: str, value: str) -> str:
    """The name of a directory for a value of a partition column.

    >>> hive_directory("topic", "a=b/c")
    'topic=a%3Db%2Fc'
    """
    return f"{key}={_ESCAPED.sub(lambda found: f'%{ord(found[0]):02X}', value)}"
