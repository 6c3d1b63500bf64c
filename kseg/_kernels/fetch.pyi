"""What Python sees of the fetch kernel; what it does is said in `fetch.pyx`."""

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
