"""The Python interface of the memory of pieces; see `blocks.pyx`."""

from collections.abc import Callable, Sequence
from typing import Any, final

from typing_extensions import Buffer

BYTES_MIN: int
BYTES_KEPT_MAX: int

@final
class Block(Buffer):
    def __len__(self) -> int: ...

@final
class Blocks:
    def __init__(
        self,
        empty: Callable[[int], Any],
        *,
        first_bytes: int,
        fresh: Callable[[int, Sequence[tuple[int, int]]], Any] | None = None,
        large_bytes: int = ...,
        again_bytes: int = 0,
        growth: int = 0,
        most: int = 0,
        least_kept: int = 0,
    ) -> None: ...
    @property
    def kept_bytes(self) -> int: ...
    def piece_bytes(self) -> int: ...
    def take(
        self, total: int, size: int, filled: Sequence[tuple[int, int]] | None = None
    ) -> Block: ...
