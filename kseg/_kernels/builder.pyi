"""What Python sees of the batch that grows; what it does is said in `builder.pyx`."""

from collections.abc import Iterable

from typing_extensions import Buffer, disjoint_base

from kseg.format.times import Time

_Pairs = Iterable[tuple[str | Buffer, str | Buffer | None]]

def record_bytes(
    magic: int,
    key: str | Buffer | None,
    value: str | Buffer | None,
    headers: _Pairs = ...,
    *,
    timestamp_delta: int = ...,
    offset_delta: int = ...,
) -> int: ...
def fields_bytes(
    magic: int, key: str | Buffer | None, value: str | Buffer | None, headers: _Pairs
) -> int: ...

@disjoint_base
class BatchBuffer:
    def __init__(
        self,
        *,
        magic: int,
        attributes: int,
        control: bool,
        log_append_time: int,
        base_offset: int,
        delete_horizon_ms: int,
        limit: int,
        ratio: float,
    ) -> None: ...
    def append(
        self,
        key: str | Buffer | None = None,
        value: str | Buffer | None = None,
        *,
        timestamp: Time = -1,
        headers: _Pairs = (),
        offset: int | None = None,
        timestamp_ms: Time | None = None,
    ) -> int: ...
    def has_room_for(
        self,
        key: str | Buffer | None = None,
        value: str | Buffer | None = None,
        headers: _Pairs = (),
        timestamp: Time = -1,
        *,
        timestamp_ms: Time | None = None,
    ) -> bool: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def record_count(self) -> int: ...
    @property
    def uncompressed_bytes(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def max_timestamp_offset(self) -> int: ...
    @property
    def _last_record_offset(self) -> int: ...
    @property
    def _base_timestamp(self) -> int: ...
    @property
    def _estimated(self) -> int: ...
    def _append_control(self, key: bytes, value: bytes, timestamp_ms: int) -> int: ...
    def _time_ms(self, given: Time) -> int: ...
    def _refuse(self, status: int, number: object) -> int: ...
    def _override(self, last_offset: int) -> None: ...
    def _close(self) -> None: ...
    def _records(self) -> memoryview: ...
    def _drop(self, forget: bool) -> None: ...
