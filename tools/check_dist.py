"""Refuse a distribution that is too big, carries what it should not, or lacks what it must.

Usage: python tools/check_dist.py DIRECTORY, which holds one sdist and one wheel or more.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

#: With codec libraries linked in, or without.
WHEEL_BYTES_MAX = 2_420_000
SDIST_BYTES_MAX = json.loads(Path("tests/tidy/limits.json").read_text())["sdist_bytes"]
KERNELS = tuple(sorted(str(path.with_suffix("")) for path in Path("kseg").rglob("*.pyx")))
#: What the kernels share: Cython writes it, so it has neither source nor stub.
SHARED = "kseg/_cyutility"
SETTINGS = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["setuptools"]
#: Files beside the modules that the package reads when it runs.
DATA = sorted(
    str(path)
    for path in Path("kseg").rglob("*")
    if any(
        fnmatch(str(path.relative_to("kseg")), each) for each in SETTINGS["package-data"]["kseg"]
    )
    and path.is_file()
    and path.name != ".gitattributes"
)
#: Tests that the sdist brings.
KERNEL_TESTS = Path("tools/kernel_tests.txt").read_text().split()


def wheel_faults(path: Path) -> list[str]:
    """What is wrong with one wheel: size, strays, missing parts."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        linked = linked_libraries(archive)
    size, most = path.stat().st_size, WHEEL_BYTES_MAX
    faults = [] if size <= most else [f"{size} bytes, {most} allowed"]
    allowed = re.compile(r"(kseg|pyspark_kseg)/.*|kseg-[^/]+\.dist-info/.*|.*/man1/kseg\.1")
    source = re.compile(r".*\.(c|h|pyx|pxd|html|pyc|gitattributes)")
    faults += [f"stray {name}" for name in names if not allowed.fullmatch(name)]
    faults += [f"source {name}" for name in names if source.fullmatch(name) and name not in DATA]
    for kernel in (*KERNELS, SHARED):
        if not any(re.fullmatch(rf"{kernel}\.[^/]*so", name) for name in names):
            faults.append(f"no extension {kernel}")
    faults += [f"no stub {kernel}.pyi" for kernel in KERNELS if f"{kernel}.pyi" not in names]
    wanted = ["kseg/__init__.py", "pyspark_kseg/__init__.py", *DATA]
    faults += [f"no {name}" for name in wanted if name not in names]
    faults += [] if ends(names, ".data/data/share/man/man1/kseg.1") else ["no manual page"]
    licenses = ["/LICENSE", *(f"/{library}.txt" for library in linked)]
    faults += [f"no licence {name}" for name in licenses if not ends(names, f"licenses{name}")]
    return faults


def ends(names: list[str], end: str) -> bool:
    """Whether one of the names ends that way."""
    return any(name.endswith(end) for name in names)


def linked_libraries(archive: zipfile.ZipFile) -> list[str]:
    """The codec libraries that are linked into the kernels of a wheel; `linked.h` names them."""
    kernels = [name for name in archive.namelist() if re.search(r"/inflate\.[^/]*so$", name)]
    said = [re.search(rb"codecs linked:([ a-z0-9]*)", archive.read(name)) for name in kernels]
    return [library.decode() for match in said if match for library in match[1].split()]


def sdist_faults(path: Path) -> list[str]:
    """What is wrong with the sdist: size, generated files, missing sources."""
    with tarfile.open(path) as archive:
        files = [member.name for member in archive if member.isfile()]
        tests = {
            member.name.partition("/")[2]: archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in archive
            if re.search(r"^[^/]*/tests/.*\.py$", member.name)
        }
    names = [name.partition("/")[2] for name in files]
    size = path.stat().st_size
    faults = [] if size <= SDIST_BYTES_MAX else [f"{size} bytes, {SDIST_BYTES_MAX} allowed"]
    faults += [
        f"generated {name}"
        for name in names
        if name.startswith("build/")
        or (name.endswith((".so", ".pyc", ".html")) and name not in DATA)
        or (name.endswith(".c") and not name.startswith("kseg/csrc/"))
    ]
    wanted = ["setup.py", "LICENSE", "kseg/csrc/crc.c", "tests/conftest.py"]
    wanted += [*DATA, *(f"{kernel}.pyx" for kernel in KERNELS)]
    wanted += [f"tests/unit/{name}" for name in KERNEL_TESTS]
    wanted += sorted({module for text in tests.values() for module in imported(text)})
    faults += [f"no {name}" for name in wanted if name not in names]
    return faults


def imported(program: str) -> list[str]:
    """The files of tests that a test imports, as far as they are in the checkout."""
    pairs = re.findall(r"^from (tests[.\w]*) import (\w+)", program, re.MULTILINE)
    files = [f"{home}.{name}" for home, name in pairs] + [home for home, _ in pairs]
    paths = [file.replace(".", "/") + ".py" for file in files]
    return [path for path in paths if Path(path).exists()]


def main(directory: Path) -> int:
    """Print one line per fault; 1 if there is any."""
    wheels, sdists = sorted(directory.rglob("*.whl")), sorted(directory.glob("*.tar.gz"))
    faults = [f"{path.name}: {fault}" for path in wheels for fault in wheel_faults(path)]
    faults += [f"{path.name}: {fault}" for path in sdists for fault in sdist_faults(path)]
    if not wheels or len(sdists) != 1:
        faults.append(f"{directory}: {len(wheels)} wheels, {len(sdists)} sdists")
    for fault in faults:
        print(fault, file=sys.stderr)
    for path in [*sdists, *wheels]:
        print(f"{path.stat().st_size:>10,} bytes  {path}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
