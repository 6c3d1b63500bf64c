"""The Python interface of the search for batches; see `search.pyx`."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

_Int64 = npt.NDArray[np.int64]

def search_batches(
    data: Buffer,
    *,
    base: int,
    limit: int,
    file_end: int,
    first_offset: int,
    last_offset: int,
    tells_large: bool,
    believes: bool,
    sums: npt.NDArray[np.uint32],
    runs: _Int64,
    state: _Int64,
) -> None: ...
