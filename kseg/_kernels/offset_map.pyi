"""The Python interface of the offset map; see `offset_map.pyx`."""

from typing import Any, final

from kseg._kernels.located import Keep, Located

@final
class OffsetMap:
    @property
    def slots(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def span(self) -> int: ...
    def __new__(
        cls,
        slots: int,
        limit: int,
        secret: Any,
        first_offset: int = 0,
        span: int = 0,
        memory: Any = None,
    ) -> OffsetMap: ...
    def put(
        self,
        data: Any,
        ends: Any,
        valid: Any,
        offsets: Any,
        start_offset: int = 0,
        *,
        has_value: Any = None,
        first_row: Any = None,
        base_offsets: Any = None,
        last_offsets: Any = None,
    ) -> int: ...
    def put_batches(
        self, located: Located, data: Any, rows: Any, base: int, start_offset: int
    ) -> tuple[int, bool, int]: ...
    def latest(
        self, data: Any, ends: Any, valid: Any, offsets: Any, known_to: int, out: Any
    ) -> None: ...
    def told(
        self, first_offsets: Any, last_offsets: Any, counts: Any, known_to: int, out: Any
    ) -> None: ...

@final
class KeepLatest(Keep):
    @property
    def unkeyed(self) -> int: ...
    @property
    def removed_tombstones(self) -> int: ...
    def __new__(
        cls, map: OffsetMap, known_to: int, tombstones: Any, discarded: Any
    ) -> KeepLatest: ...
