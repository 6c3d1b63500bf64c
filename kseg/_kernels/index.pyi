"""The Python interface of the index kernels; see `index.pyx`."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

_Int64 = npt.NDArray[np.int64]

def bisect_entries(
    data: Buffer, entry_bytes: int, key_at: int, key_bytes: int, count: int, target: int
) -> int: ...
def lookup_entries(
    data: Buffer,
    entry_bytes: int,
    key_at: int,
    key_bytes: int,
    value_at: int,
    count: int,
    targets: _Int64,
    least: int,
    base: int,
    starts: npt.NDArray[np.uint32],
    out: _Int64,
) -> None: ...
