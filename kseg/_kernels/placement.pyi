"""What Python sees of the placement kernel; what it does is said in `placement.pyx`."""

from typing import Final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, disjoint_base

_Int64 = npt.NDArray[np.int64]

def place_rows(
    rows: _Int64, base: int, interval: int, state: _Int64, offsets: bytearray, times: bytearray
) -> bool: ...

@disjoint_base
class Places:
    offsets: Final[bytes]
    times: Final[bytes]
    def __init__(
        self,
        *,
        end: int,
        latest_max: int,
        base: int,
        interval: int,
        position: int,
        since: int,
        latest: tuple[int, int],
        indexed: int,
        offset_room: int,
        indexed_time: tuple[int, int],
        time_room: int,
    ) -> None: ...
    @property
    def position(self) -> int: ...
    @property
    def since(self) -> int: ...
    @property
    def latest(self) -> tuple[int, int]: ...
    @property
    def indexed(self) -> int: ...
    @property
    def indexed_time(self) -> tuple[int, int]: ...
    def keep(
        self, data: Buffer, next_offset: int, leader_epoch: int
    ) -> tuple[int, int, int, int, int] | None: ...
    def place(self, size: int, last: int, latest: int) -> bool: ...
    def settle(self) -> None: ...

def survey_rows(
    rows: _Int64, *, base: int, before: int, strict: bool, epoch: int, found: _Int64
) -> None: ...
