"""The Python interface of the placement kernel; see `placement.pyx`."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, disjoint_base

_Int64 = npt.NDArray[np.int64]
_Note = tuple[int, int, int, int, int, int, int]
_Judged = tuple[bytes, int, int, int, int, int, int]

def place_rows(
    rows: _Int64,
    base: int,
    interval: int,
    strict: bool,
    state: _Int64,
    offsets: bytearray,
    times: bytearray,
) -> tuple[int, int]: ...

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
    def lead(
        self,
        data: memoryview,
        rules: object,
        next_offset: int,
        now: int,
        producers: dict[int, Any] | None,
        inflate: Callable[[int, memoryview, int], Buffer | None],
    ) -> tuple[_Judged, list[_Note] | None] | None: ...
    def follow(
        self, data: Buffer, next_offset: int, leader_epoch: int, producers: dict[int, Any] | None
    ) -> tuple[int, int, int, int, int, list[_Note] | None] | None: ...
    def settle(self) -> None: ...

def survey_rows(
    rows: _Int64, *, base: int, before: int, strict: bool, epoch: int, found: _Int64
) -> None: ...
