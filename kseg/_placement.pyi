"""What Python sees of the placement kernel; what it does is said in `_placement.pyx`."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

_Int64 = npt.NDArray[np.int64]

def place_rows(
    rows: _Int64, base: int, interval: int, state: _Int64, offsets: bytearray, times: bytearray
) -> bool: ...
def place_batches(
    data: Buffer,
    base: int,
    interval: int,
    position: int,
    since: int,
    latest: int,
    latest_at: int,
    indexed: int,
    indexed_time: int,
    indexed_time_at: int,
    offset_room: int,
    time_room: int,
) -> tuple[bytes, bytes, int, int, int, int, int, int, int] | None: ...
def survey_rows(
    rows: _Int64, *, base: int, before: int, strict: bool, epoch: int, found: _Int64
) -> None: ...
