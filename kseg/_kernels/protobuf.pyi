"""The signatures of the kernel for Protobuf; `protobuf.pyx` describes them."""

from typing import Final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

DEPTH_MAX: Final = 64
SLOTS_MAX: Final = 1024

def mark_messages(
    offsets: npt.NDArray[np.int32],
    data: Buffer,
    fields: npt.NDArray[np.int64],
    firsts: npt.NDArray[np.int64],
    widths: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int64],
    values_max: int,
    marks: npt.NDArray[np.uint8],
) -> int: ...
