"""The Python interface of the kernels for appends; see `validate.pyx`."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

_Int64 = npt.NDArray[np.int64]
_Answer = tuple[int, int, int, int, int, bool, int, int, int, int]

def examine_records(
    data: Buffer,
    *,
    count: int,
    base_offset: int,
    base_timestamp: int,
    max_timestamp: int,
    log_append: bool,
    skip: bool,
    compacted: bool,
    create_time: bool,
    now: int,
    before_max: int,
    after_max: int,
    faults: _Int64,
) -> _Answer: ...
def examine_messages(
    data: Buffer,
    *,
    inner: bool,
    magic: int,
    offset: int,
    timestamp: int,
    log_append: bool,
    compacted: bool,
    create_time: bool,
    now: int,
    before_max: int,
    after_max: int,
    faults: _Int64,
) -> _Answer: ...
def assign_messages(data: Buffer, *, next_offset: int, create_time: bool, now: int) -> None: ...
