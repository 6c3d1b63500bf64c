"""The Python interface of the kernels for old message sets; see `legacy.pyx`."""

from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from kseg._kernels.encode import Rows

_Int64 = npt.NDArray[np.int64]

def scan_messages_07(
    data: Buffer,
    *,
    base: int,
    start: int,
    limit: int,
    file_end: int,
    verify: int,
    log_start: int,
    rows: _Int64,
    walk: _Int64,
) -> None: ...
def encode_messages(
    rows: Rows,
    first: int,
    end: int,
    base_offset: int | None,
    bytes_max: int,
    scratch: bytearray | None,
    magic: int,
    attributes: int,
    relative: bool,
    timestamp: int | None,
) -> tuple[Any, int, int, int, int, int, int]: ...
def encode_messages_07(
    rows: Rows, magic: int, attributes: int
) -> tuple[bytes | None, int, int]: ...
