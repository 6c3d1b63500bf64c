"""The Python interface of the reader of batches; see `reader.pyx`."""

from typing import final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, disjoint_base

from kseg._kernels.blocks import Block, Blocks

_Int64 = npt.NDArray[np.int64]

FIELD_BITS: dict[str, int]
END: int
FULL: int
NO_ROOM: int
MORE: int
ODD: int
OTHER: int
PAST: int

@disjoint_base
class Inflated:
    def forget(self) -> None: ...

@final
class Piece:
    @property
    def block(self) -> Block: ...
    @property
    def rows(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def time_type(self) -> int: ...
    @property
    def has_matches(self) -> bool: ...
    def numbers(self, field: str) -> tuple[int, int]: ...
    def strings(self, field: str) -> tuple[int, int, int, int, int, int]: ...

@final
class BatchReader:
    def __init__(
        self,
        blocks: Blocks,
        inflated: Inflated,
        counts: _Int64 | None = None,
        *,
        fields: int,
        control: bool,
        verify_crc: bool,
        one_type: bool,
        notes: bool,
        within: _Int64,
        inflated_max: int,
        rows_max: int,
        bytes_max: int,
        rows_usual: int,
        body_max: int,
        sized: bool,
        as_large_as_possible: bool,
        needle: bytes = b"",
        folds: bool = False,
    ) -> None: ...
    @property
    def at(self) -> int: ...
    @property
    def last(self) -> int | None: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def needed(self) -> int: ...
    def move(self, at: int, last: int | None = None) -> None: ...
    def read(self, data: Buffer, base: int, limit: int, file_end: int, wanted_end: int) -> int: ...
    def read_table(self, data: Buffer, table: _Int64, base: int) -> int: ...
    def take(self) -> Piece | None: ...
    def begin_one(self) -> None: ...
    def read_one(
        self,
        data: Buffer,
        row: _Int64,
        body: Buffer | None,
        *,
        base: int,
        rows_max: int,
        bytes_max: int,
    ) -> tuple[bool, int, int]: ...
