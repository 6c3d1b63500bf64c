"""What Python sees of the kernel for lines of JSON; what it does is said in `lines.pyx`."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

BASE64: Final = 0
HEX: Final = 1
UTF8: Final = 2

VALUE: Final = 0
KEY: Final = 1
HEADER_NAME: Final = 2
HEADER_VALUE: Final = 3
BINARY_COLUMNS: Final = 4

DEPTH_MAX: Final = 64
VALUE_DEPTH_MAX: Final = 512
HEADER_BYTES_MIN: Final = 7

class LinesEnd(NamedTuple):
    rows: int
    headers: int
    controls: int
    lines: int
    faulty: bool
    nulls: tuple[int, int, int, int]

def parse_lines(
    text: bytes,
    encoding: int,
    keep_timestamps: bool,
    now_ms: int,
    offsets: npt.NDArray[np.int32],
    bytes_out: npt.NDArray[np.uint8],
    validity: npt.NDArray[np.uint8],
    header_offsets: npt.NDArray[np.int32],
    timestamps: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int64],
    controls: npt.NDArray[np.int64],
) -> LinesEnd: ...
def mark_not_json(
    offsets: npt.NDArray[np.int32], data: Buffer, marks: npt.NDArray[np.uint8]
) -> None: ...
