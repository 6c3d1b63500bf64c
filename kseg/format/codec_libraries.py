"""Which code inflates each codec: a library of the system, the kernel's own, or a package.

The kernel `inflate` opens the libraries. This module names those that it could not use, with the
reasons.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec

from kseg._kernels import inflate
from kseg.constants import Compression

#: By codec: the packages that may inflate it, the one that is asked first in front. The last of
#: gzip's belongs to Python.
_PACKAGES = {
    Compression.GZIP: ("isal", "zlib"),
    Compression.SNAPPY: ("cramjam",),
    Compression.LZ4: ("cramjam",),
    Compression.ZSTD: ("backports.zstd",) if sys.version_info < (3, 14) else ("compression.zstd",),
}


@dataclass(frozen=True, slots=True)
class CodecLibrary:
    """What inflates one codec.

    Attributes:
        name: the soname of a library of the system, `kseg` for kseg's own code, or a package.
        version: of it; None where it has none.
        path: of the library's file, as the loader found it; None for what is no such library.
        reason: why no library of the system is used; empty where one is, or none is needed.
    """

    name: str
    version: str | None
    path: str | None
    reason: str

    def __str__(self) -> str:
        """Name, version, and path or reason, as `kseg --version` prints them."""
        where = self.path or self.reason
        name = f"{self.name} {self.version}" if self.version else self.name
        return f"{name} ({where})" if where else name


def codecs() -> dict[Compression, CodecLibrary]:
    """What inflates each codec in this process; compression is always left to packages.

    The choice is made when compressed bytes are first read, by what the loader finds and by the
    environment: with `KSEG_CODECS=packages` no library of the system is opened.

    Example:
        >>> sorted(codec.label for codec in codecs())
        ['gzip', 'lz4', 'snappy', 'zstd']
    """
    return {codec: _library_of(codec) for codec in _PACKAGES}


def _library_of(codec: Compression) -> CodecLibrary:
    name, version, path, reason = inflate.libraries().get(codec, ("", None, None, ""))
    if codec not in inflate.USABLE:
        reason = f"{name} is not used: {reason}" if reason else "KSEG_CODECS=packages"
        return _package_of(codec, reason)
    if not name:
        from kseg import __version__

        return CodecLibrary("kseg", __version__, None, "")
    return CodecLibrary(name, version, path, "")


def _package_of(codec: Compression, reason: str) -> CodecLibrary:
    *_, last = names = _PACKAGES[codec]
    name = next((name for name in names if find_spec(name) is not None), last)
    return CodecLibrary(name, _version_of(name), None, reason)


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return zlib.ZLIB_RUNTIME_VERSION if package == "zlib" else None
