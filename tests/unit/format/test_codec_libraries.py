"""What inflates is named by a function and by the command line, with what makes it faster."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from importlib import metadata
from pathlib import Path

import pytest

import kseg
from kseg import _core
from kseg._kernels import inflate
from kseg.cli.main import run
from kseg.format import codec_libraries
from kseg.format.codec_libraries import CodecLibrary
from tests.zstd import zstd

SONAMES = {"gzip": "libdeflate.so.0", "lz4": "liblz4.so.1", "zstd": "libzstd.so.1"}


def by_label() -> dict[str, CodecLibrary]:
    return {codec.label: library for codec, library in kseg.codecs().items()}


@pytest.mark.parametrize("codec_way", ["libraries"], indirect=True)
def test_an_environment_variable_leaves_out_what_is_linked(codec_way: str) -> None:
    program = "import kseg; print(*sorted({one.origin for one in kseg.codecs().values()}))"
    environment = os.environ | {"KSEG_CODECS": "system", "LD_LIBRARY_PATH": ""}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(said) - {"package"} == {"own", "system"}


@pytest.mark.parametrize("codec_way", ["packages"], indirect=True)
def test_packages_are_named_with_version_and_reason(codec_way: str) -> None:
    inflate.use_libraries(False)
    found = by_label()
    assert found.pop("snappy").origin == "own"
    packages = {"gzip": "isal", "lz4": "cramjam", "zstd": "backports.zstd"}
    for codec, library in found.items():
        assert (library.name, library.origin) == (packages[codec], "package")
        assert library.version == metadata.version(packages[codec])
        reasons = ("KSEG_CODECS=packages", f"{SONAMES[codec]} is not used: it is too old")
        assert library.path is None
        assert library.reason in reasons
        assert library.advice == (WHEEL if "too old" in library.reason else "")


@pytest.mark.parametrize("codec_way", ["packages"], indirect=True)
def test_without_isal_gzip_is_left_to_zlib(codec_way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_libraries, "find_spec", lambda _name: None)
    library = by_label()["gzip"]
    assert (library.name, library.version) == ("zlib", zlib.ZLIB_RUNTIME_VERSION)


def test_the_library_of_python_3_14_has_a_version() -> None:
    assert codec_libraries._version_of("compression.zstd") == zstd.zstd_version


WHEEL = "a wheel of kseg brings the library: pip install --only-binary kseg kseg"


@pytest.mark.parametrize("codec_way", ["packages"], indirect=True)
@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("not found", "on Debian or Ubuntu: apt install liblz4-1"),
        ("it is too old", WHEEL),
        ("this system's loader does not tell where it looks", WHEEL),
        (
            "the loader's search path has an entry that is no absolute path",
            "remove that entry from LD_LIBRARY_PATH",
        ),
    ],
)
def test_a_library_that_is_not_used_has_the_reason_and_what_to_do(
    codec_way: str, reason: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflate, "libraries", lambda: {3: ("liblz4.so.1", None, None, reason)})
    library = by_label()["lz4"]
    assert library.reason == f"liblz4.so.1 is not used: {reason}"
    assert library.advice == advice


READ = """
import sys
from kseg._kernels import inflate
inflate.use_libraries(False)
inflate.libraries = lambda: {
    3: ("liblz4.so.1", None, None, "not found"), 4: ("libzstd.so.1", None, None, "not found")
}
from kseg.cli.main import main
main()
"""


@pytest.mark.parametrize(("codec", "lines"), [("lz4", 1), ("zstd", 0), ("gzip", 0), ("none", 0)])
def test_a_slow_codec_is_announced_in_one_line_by_a_verb_that_inflates(
    codec: str, lines: int, tmp_path: Path
) -> None:
    directory = tmp_path / "orders-0"
    with kseg.Log.open(directory, mode="append", create=True) as log:
        records = [{"key": "k", "value": "to be or not to be"}] * 50
        log.append(records, options=kseg.BatchOptions(compression=codec))
    said = subprocess.run(
        [sys.executable, "-c", READ, "read", str(directory)], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert said.stderr.splitlines() == lines * [
        "kseg: lz4 is read slowly, by cramjam, since liblz4.so.1 is not used: not found; "
        "on Debian or Ubuntu: apt install liblz4-1"
    ]


def test_the_command_line_names_each_codec(
    codec_way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--version"]) == 0
    first, *rest, checksums = capsys.readouterr().out.splitlines()
    assert first == f"kseg {metadata.version('kseg')}"
    assert checksums == f"crc    {_core.crc_variant()}, prefetch {_core.prefetch_bytes()} bytes"
    assert rest == [f"{name:<6} {library}" for name, library in by_label().items()]
