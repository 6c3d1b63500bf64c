"""What Python sees of the placement kernel; what it does is said in `_placement.pyx`."""

import numpy as np
import numpy.typing as npt

_Int64 = npt.NDArray[np.int64]

def place_rows(
    rows: _Int64, base: int, interval: int, state: _Int64, offsets: bytearray, times: bytearray
) -> bool: ...
def survey_rows(
    rows: _Int64, *, base: int, before: int, strict: bool, epoch: int, found: _Int64
) -> None: ...
