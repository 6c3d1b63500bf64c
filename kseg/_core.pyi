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
def locate_records(
    view: Buffer,
    arena: Buffer,
    bodies: _Int64,
    *,
    within: _Int64,
    rows_max: int,
    bytes_max: int,
    offsets: _Int64,
    timestamps: _Int64,
    spans: _Int32,
    first_row: _Int64,
    state: _Int64,
    keys: tuple[_Int32, _UInt8, _UInt8] | None = None,
    values: tuple[_Int32, _UInt8, _UInt8] | None = None,
) -> None: ...
def gather_bytes(
    view: Buffer,
    arena: Buffer,
    bodies: _Int64,
    first_row: _Int64,
    spans: _Int32,
    column: int,
    offsets: _Int32,
    data: _UInt8,
    validity: _UInt8,
) -> None: ...
def gather_headers(
    view: Buffer,
    arena: Buffer,
    bodies: _Int64,
    first_row: _Int64,
    spans: _Int32,
    lists: _Int32,
    key_offsets: _Int32,
    keys: _UInt8,
    value_offsets: _Int32,
    values: _UInt8,
    validity: _UInt8,
) -> None: ...
