"""The Python interface of the kernel that inflates; see `inflate.pyx`."""

from collections.abc import Callable

from typing_extensions import Buffer, disjoint_base

#: Codecs that are inflated here as of now, by number.
USABLE: set[int]

@disjoint_base
class Inflater:
    def into(self, codec: int, magic: int, data: Buffer, room: Buffer) -> int: ...

def lend_package(function: Callable[[int, memoryview, int, int], Buffer | None]) -> None: ...
def inflate_in_scratch(codec: int, magic: int, data: Buffer, inflated_max: int) -> bytes | None: ...
def use_libraries(wanted: bool, own: bool = True) -> tuple[bool, bool]: ...
def libraries() -> dict[int, tuple[str, str | None, str | None, str]]: ...
