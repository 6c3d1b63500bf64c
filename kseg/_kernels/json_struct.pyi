"""The signatures of the kernel for JSON in columns; `json_struct.pyx` describes them."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from kseg._kernels.avro import Columns

SYNTAX: int
TRAILING: int
RANGE: int
TEXT: int
TWICE: int
TYPE: int
LIMIT: int
NAME_BYTES_MAX: int

def decode_json(
    columns: Columns,
    offsets: npt.NDArray[np.int64],
    data: Buffer,
    wanted: npt.NDArray[np.uint8],
    names: Buffer,
    ends: npt.NDArray[np.int32],
    order: npt.NDArray[np.int32],
    faults: dict[int, tuple[int, int, int]],
) -> None: ...
