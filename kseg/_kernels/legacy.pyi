"""What Python sees of the kernels for old message sets; what they do is said in `legacy.pyx`."""

from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from kseg._kernels.encode import Rows

_Int64 = npt.NDArray[np.int64]
_Int32 = npt.NDArray[np.int32]

def locate_messages(
    view: Buffer,
    arena: Buffer,
    bodies: _Int64,
    *,
    within: _Int64,
    rows_max: int,
    bytes_max: int,
    check_crc: bool,
    offsets: _Int64,
    timestamps: _Int64,
    spans: _Int32,
    valid: npt.NDArray[np.uint8],
    first_row: _Int64,
    first_offsets: _Int64,
    state: _Int64,
) -> None: ...
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
