"""What Python sees of the read kernels; what they do is said in `_core.pyx`."""

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

_Int64 = npt.NDArray[np.int64]
_Int32 = npt.NDArray[np.int32]
_UInt8 = npt.NDArray[np.uint8]

def crc32c(data: Buffer, value: int = 0) -> int: ...
def crc32(data: Buffer, value: int = 0) -> int: ...
def crc_variants() -> tuple[str, ...]: ...
def crc_variant() -> str: ...
def set_crc_variant(name: str) -> None: ...
def gather(
    first: Buffer,
    second: Buffer,
    spans: _Int64,
    ends: _Int32,
    data: _UInt8,
    valid: _UInt8,
) -> None: ...
