"""What Python sees of the reader of batches; what it does is said in `reader.pyx`."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, disjoint_base

_Int64 = npt.NDArray[np.int64]

@disjoint_base
class Inflated:
    def forget(self) -> None: ...
    @property
    def holds(self) -> bool: ...
    @property
    def expansion(self) -> float: ...

def block_layout(fields: int, rows: int, bytes_: int, headers: int, at: _Int64) -> int: ...
def read_batches(
    data: Buffer,
    table: _Int64 | None,
    *,
    base: int,
    limit: int,
    file_end: int,
    ask: _Int64,
    inflated: Inflated,
    block: npt.NDArray[np.uint8],
    counts: _Int64,
    state: _Int64,
) -> int: ...
def count_records(
    data: Buffer,
    row: _Int64,
    body: Buffer | None,
    *,
    base: int,
    ask: _Int64,
    rows_max: int,
    bytes_max: int,
    place: _Int64,
    at: _Int64,
    state: _Int64,
) -> int: ...
def copy_records(
    data: Buffer,
    row: _Int64,
    body: Buffer | None,
    *,
    base: int,
    ask: _Int64,
    place: _Int64,
    block: npt.NDArray[np.uint8],
    state: _Int64,
) -> None: ...
