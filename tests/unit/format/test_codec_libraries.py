"""Which code inflates is told: by a function and by the command line."""

from __future__ import annotations

import os
import zlib
from importlib import metadata

import pytest

import kseg
from kseg import _core
from kseg._kernels import inflate
from kseg.cli.main import run
from kseg.format import codec_libraries
from kseg.format.codec_libraries import CodecLibrary

SONAMES = {"gzip": "libdeflate.so.0", "lz4": "liblz4.so.1", "zstd": "libzstd.so.1"}


def told() -> dict[str, CodecLibrary]:
    return {codec.label: library for codec, library in kseg.codecs().items()}


@pytest.mark.parametrize("codec_way", ["system"], indirect=True)
def test_libraries_of_the_system_are_told_with_version_and_path(codec_way: str) -> None:
    old = {codec for codec, library in told().items() if "too old" in library.reason}
    libraries = {codec: library for codec, library in told().items() if codec not in old}
    assert libraries.pop("snappy") == CodecLibrary("kseg", kseg.__version__, None, "")
    names = {codec: name for codec, name in SONAMES.items() if codec not in old}
    assert {codec: library.name for codec, library in libraries.items()} == names
    for codec, library in libraries.items():
        assert library.path is not None
        assert os.path.isabs(library.path)
        assert (library.version is None) == (codec == "gzip")
        assert library.reason == ""


@pytest.mark.parametrize("codec_way", ["packages"], indirect=True)
def test_packages_are_told_with_version_and_reason(codec_way: str) -> None:
    inflate.use_libraries(False)
    packages = {"gzip": "isal", "snappy": "cramjam", "lz4": "cramjam", "zstd": "backports.zstd"}
    for codec, library in told().items():
        assert library.name == packages[codec]
        assert library.version == metadata.version(packages[codec])
        reasons = ("KSEG_CODECS=packages", f"{SONAMES.get(codec)} is not used: it is too old")
        assert library.path is None
        assert library.reason in reasons


@pytest.mark.parametrize("codec_way", ["packages"], indirect=True)
def test_without_isal_gzip_is_left_to_zlib(codec_way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_libraries, "find_spec", lambda _name: None)
    library = told()["gzip"]
    assert (library.name, library.version) == ("zlib", zlib.ZLIB_RUNTIME_VERSION)


@pytest.mark.parametrize("codec_way", ["packages"], indirect=True)
def test_a_library_that_is_not_used_is_told_with_the_reason(
    codec_way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ("liblz4.so.1", None, None, "not found")
    monkeypatch.setattr(inflate, "libraries", lambda: {3: row})
    assert told()["lz4"].reason == "liblz4.so.1 is not used: not found"


def test_the_command_line_tells_each_codec(
    codec_way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--version"]) == 0
    first, *rest, checksums = capsys.readouterr().out.splitlines()
    assert first == f"kseg {metadata.version('kseg')}"
    assert checksums == f"crc    {_core.crc_variant()}, prefetch {_core.prefetch_bytes()} bytes"
    assert rest == [f"{name:<6} {library}" for name, library in told().items()]
