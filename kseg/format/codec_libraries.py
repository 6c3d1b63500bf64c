"""Which code inflates each codec: a linked library, one of the system, kseg's own, or a package.

The kernel `inflate` opens the libraries. This module names the unusable ones with the reasons, and
gives advice on a slow codec.
"""

from __future__ import annotations

import sys
import zlib
from importlib import metadata
from importlib.util import find_spec
from typing import Literal

from kseg import _core
from kseg._kernels import inflate
from kseg.constants import Compression
from kseg.documents import frozen_dataclass

#: Codec -> the packages that may inflate it, in the order of preference. `zlib` belongs to
#: Python.
_PACKAGES = {
    Compression.GZIP: ("isal", "zlib"),
    Compression.SNAPPY: ("cramjam",),
    Compression.LZ4: ("cramjam",),
    Compression.ZSTD: ("backports.zstd",) if sys.version_info < (3, 14) else ("compression.zstd",),
}


#: Codec for which a package is slower than a library -> the Debian package of the library.
_FASTER = {
    Compression.GZIP: "libdeflate0",
    Compression.LZ4: "liblz4-1",
    Compression.ZSTD: "libzstd1",
}


@frozen_dataclass
class CodecLibrary:
    """The library or package that inflates one codec.

    Attributes:
        name: the library or package; `kseg` for kseg's own code.
        version: its version; None if it has none.
        origin: `linked` into kseg, opened from the `system`, a `package`, or kseg's `own` code.
        path: the library's file, as the loader found it; None if it is not the system's.
        reason: the reason why no library is used; empty if one is used, or none is needed.
        advice: the way to make the codec faster here; empty if it is as fast as it can be.
    """

    name: str
    version: str | None
    origin: Literal["linked", "system", "package", "own"]
    path: str | None = None
    reason: str = ""
    advice: str = ""

    def __str__(self) -> str:
        """Name, version, origin, and path or reason, as `kseg --version` prints them."""
        name = f"{self.name} {self.version}" if self.version else self.name
        where = self.path or self.reason
        return f"{name} ({self.origin}, {where})" if where else f"{name} ({self.origin})"


def codecs() -> dict[Compression, CodecLibrary]:
    """The library of each codec in this process; packages always compress.

    The choice is made when compressed bytes are first read, by the libraries that are linked into
    kseg, on what the loader finds, and on the environment: with `KSEG_CODECS=system` kseg leaves
    out what is linked, with `KSEG_CODECS=packages` only snappy is inflated by kseg itself.

    Example:
        >>> sorted(codec.label for codec in codecs())
        ['gzip', 'lz4', 'snappy', 'zstd']
    """
    return {codec: _library_of(codec) for codec in _PACKAGES}


def checksums() -> str:
    """Which kernel computes checksums, and how far ahead it prefetches memory."""
    return f"{_core.crc_variant()}, prefetch {_core.prefetch_bytes()} bytes"


def slow_codecs() -> str:
    """Advice about slow packages that this process has used; empty if there are none.

    An environment that asks for packages gets no advice. Neither does zstd: the library of many
    systems is too old, so the line would come with each verb, and only a wheel would help.
    """
    from kseg.format.codec import BY_PACKAGE  # late: it loads NumPy, which names do not need

    codecs_by_package = BY_PACKAGE - {Compression.ZSTD}
    slow = [
        (codec, library)
        for codec, library in codecs().items()
        if codec in codecs_by_package and library.advice
    ]
    return ". ".join(
        f"{codec.label} is read slowly, by {library.name}, since {library.reason}; {library.advice}"
        for codec, library in slow
    )


def _library_of(codec: Compression) -> CodecLibrary:
    """The library that inflates a codec: the system's, one that is linked in, or a package."""
    name, version, path, reason = inflate.libraries().get(codec, ("", None, None, ""))
    if codec not in inflate.USABLE:
        return _package_of(codec, f"{name} is not used: {reason}" if reason else "")
    if not name:
        from kseg import __version__

        return CodecLibrary("kseg", __version__, "own")
    return CodecLibrary(name, version, "system" if path else "linked", path)


def _package_of(codec: Compression, reason: str) -> CodecLibrary:
    """The Python package that inflates a codec, why no library does, and how to get one."""
    *faster, last = _PACKAGES[codec]
    name = next((name for name in faster if find_spec(name) is not None), last)
    advice = _advice(codec, reason) if reason and codec in _FASTER else ""
    reason = reason or "KSEG_CODECS=packages"
    return CodecLibrary(name, _version_of(name), "package", None, reason, advice)


def _advice(codec: Compression, reason: str) -> str:
    """The advice for a library that is not used, by the reason."""
    if "search path" in reason:
        return "remove that entry from LD_LIBRARY_PATH"
    if "loader" in reason or "too old" in reason:
        return "a wheel of kseg brings the library: pip install --only-binary kseg kseg"
    return f"on Debian or Ubuntu: apt install {_FASTER[codec]}"


def _version_of(package: str) -> str | None:
    """The version of a package, or of the library in Python itself; None if unknown."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        if package == "compression.zstd":  # a part of Python 3.14
            from kseg.format.codec import zstd_library

            version: str = zstd_library().zstd_version
            return version
        return zlib.ZLIB_RUNTIME_VERSION if package == "zlib" else None
