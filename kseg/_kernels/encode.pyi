"""The Python interface of the write kernels; see `encode.pyx`."""

from collections.abc import Iterable
from typing import Any, SupportsIndex, final

from typing_extensions import Buffer

_Values = tuple[bytes | None, ...] | Any  # or a value with offsets, data and validity

@final
class Rows:
    @property
    def length(self) -> int: ...
    @property
    def has_offsets(self) -> bool: ...
    def __new__(
        cls,
        length: int,
        offset: Buffer | None = None,
        timestamp: Buffer | None = None,
        key: _Values | None = None,
        value: _Values | None = None,
        headers: Buffer | None = None,
        header_keys: _Values | None = None,
        header_values: _Values | None = None,
    ) -> Rows: ...

def has_text(values: tuple[object, ...]) -> bool: ...
def int64s(column: Iterable[SupportsIndex]) -> memoryview: ...
def encode_records(
    rows: Rows,
    first: int,
    end: int,
    base_offset: int | None,
    last_offset: int | None,
    bytes_max: int,
    scratch: bytearray | None,
    attributes: int,
    leader_epoch: int,
    base_timestamp: int,
    log_append_time: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> tuple[Any, int, int, int, int, int, int, int]: ...
def encode_runs(rows: Rows, runs: Any, times: Any) -> bytes | None: ...
def seal_batch(
    body: Buffer,
    base_offset: int,
    last_offset: int,
    leader_epoch: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    count: int,
) -> bytes: ...
def seal_like(plain: Buffer, body: Buffer, codec: int) -> bytes: ...
