"""Zstandard by the library of Python 3.14, or its backport."""

from __future__ import annotations

from kseg.format.codec import zstd_library

zstd = zstd_library()


def zstd_frame(
    data: bytes, *, level: int = 3, sized: bool = False, checksum: bool = False, **more: int
) -> bytes:
    """One frame of these bytes; `more` are compression parameters by the library's names."""
    names = {
        "compression_level": level,
        "content_size_flag": sized,
        "checksum_flag": checksum,
        **more,
    }
    options = {getattr(zstd.CompressionParameter, name): value for name, value in names.items()}
    frame: bytes = zstd.compress(data, options=options)
    return frame
