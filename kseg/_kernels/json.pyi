"""The signatures of the kernel for JSON; `json.pyx` describes them."""

from typing import Final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

VALUE_DEPTH_MAX: Final = 512

def mark_not_json(
    offsets: npt.NDArray[np.int32], data: Buffer, marks: npt.NDArray[np.uint8]
) -> None: ...
