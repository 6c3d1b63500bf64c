"""The Python interface of the fetch kernel; see `fetch.pyx`."""

def fetch_batches(
    log: bytes,
    index: bytes | None,
    base_offset: int,
    file_end: int,
    offset: int,
    read_end: int,
    bytes_max: int,
    whole_first: bool,
    with_data: bool,
) -> tuple[int, int, int, memoryview] | None: ...
