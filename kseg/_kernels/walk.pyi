"""The Python interface of the walk over batches; see `walk.pyx`."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

_Int64 = npt.NDArray[np.int64]

def scan_batches(
    data: Buffer,
    *,
    base: int,
    start: int,
    limit: int,
    file_end: int,
    verify: int,
    policy: int,
    entries: Buffer,
    rows: _Int64,
    walk: _Int64,
) -> None: ...
def scan_cached(
    fd: int, *, start: int, limit: int, file_end: int, rows: _Int64, walk: _Int64
) -> None: ...
