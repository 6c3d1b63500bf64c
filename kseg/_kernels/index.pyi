"""The Python interface of the index kernels; see `index.pyx`."""

from typing_extensions import Buffer

def bisect_entries(
    data: Buffer, entry_bytes: int, key_at: int, key_bytes: int, count: int, target: int
) -> int: ...
