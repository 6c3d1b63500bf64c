"""Refuse an installed kseg in which a module cannot be imported, or a verb does not do its work.

    python tools/check_installed.py [--without-extras]    with the Python that has kseg installed

With --without-extras, a module that needs an extra is left out, and the last line says how many.
What only a package can lack shows here: a module, a kernel, a stub of data, an entry point, the
fast way to compute checksums. What the code does is tested from the checkout.
"""

from __future__ import annotations

import importlib
import pkgutil
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

#: What each verb is given, in a directory with the demo data; its exit code where that is not 0.
VERBS: dict[str, tuple[str, int]] = {
    "info": ("data", 0),
    "dump": ("data/orders-0 --format jsonl", 0),
    "verify": ("data --deep", 0),
    "read": ("data/payments-0 --isolation read_committed", 0),
    "grep": ("zzzzz data", 0),
    "lookup": ("data/orders-0 --offset 40", 0),
    "partition": ("user-42 --partitions 4", 0),
    "schemas": ("data", 0),
    "groups": ("data", 0),
    "metadata": ("data", 0),
    "transactions": ("data", 1),
    "export": ("data/clicks-0 -o clicks.jsonl", 0),
    "convert": ("data/clicks-0/00000000000000000000.log --codec lz4 -o clicks.log", 0),
    "append": ("new/orders-0", 0),
    "adopt": ("--help", 0),
    "doctor": ("data", 0),
    "explain": ("data", 0),
    "report": ("data -o page.html", 0),
    "diff": ("data/clicks-0 data/clicks-1", 1),
    "merge": ("data backup -o merged", 0),
    "salvage": ("data -o salvaged", 0),
    "recover": ("data/clicks-0", 0),
    "erase": ("data/clicks-0 --offset 5", 1),
    "reindex": ("data/clicks-0", 0),
    "truncate": ("data/clicks-1 --to 5", 1),
    "retain": ("data", 0),
    "compact": ("data", 0),
    "stats": ("data --json", 0),
    "spark": ("explain --help", 0),
    "demo": ("--no-spark", 0),
    "completion": ("bash", 0),
}
EXTRAS = ("fsspec", "isal", "pandas", "py4j", "pyarrow", "pyspark")
LINE = b'{"value": "b25l"}\n'


def import_all(without_extras: bool) -> None:
    """Import each module of both packages from where they are installed."""
    for package in ("kseg", "pyspark_kseg"):
        root = importlib.import_module(package)
        assert root.__file__ is not None
        if not root.__file__.startswith(sys.prefix):
            raise SystemExit(f"{package} is {root.__file__}, not what is installed")
        names = [each.name for each in pkgutil.walk_packages(root.__path__, package + ".")]
        left_out = 0
        for name in names:
            try:
                importlib.import_module(name)
            except ImportError as error:
                if not without_extras or not needs_extra(error):
                    raise
                left_out += 1
        print(
            f"{package}: {len(names)} modules"
            + f", {left_out} of them need an extra" * without_extras
        )


def needs_extra(error: ImportError) -> bool:
    """Whether an import failed for lack of a library that only an extra brings."""
    return type(error).__name__ == "MissingExtraError" or error.name in EXTRAS


def run_all() -> list[str]:
    """Run each verb over the demo data; answers what is wrong."""
    known = importlib.import_module("kseg.cli.main").VERBS
    faults = [f"{verb}: not run here" for verb in known if verb not in VERBS]
    kseg = Path(sys.executable).with_name("kseg")
    data = Path(importlib.import_module("kseg").__path__[0]) / "demo_data"
    with tempfile.TemporaryDirectory() as place:
        for name in ("data", "backup"):
            shutil.copytree(data, Path(place) / name)
        for verb, (arguments, code) in VERBS.items():
            done = subprocess.run(
                [kseg, verb, *arguments.split()],
                cwd=place,
                input=LINE,
                capture_output=True,
                check=False,
            )
            if done.returncode != code or not done.stdout + done.stderr:
                said = (done.stdout + done.stderr).decode(errors="replace")[-2000:]
                faults.append(f"kseg {verb} {arguments}: exit {done.returncode}\n{said}")
    return faults


def checksum_faults() -> list[str]:
    """The kernel must compute checksums with the processor's instructions.

    The table is 25 times slower. A compiler whose runtime denies each feature (zig's does) would
    choose it without a word.
    """
    from kseg._core import crc_variant

    variant = crc_variant()
    print(f"checksums: {variant}")
    slow = variant == "table" and has_checksum_instructions()
    return ["checksums use the table, though the processor has instructions for them"] * slow


def has_checksum_instructions() -> bool:
    """Whether the processor has PCLMULQDQ (x86-64) or CRC32 (aarch64). Each Mac has."""
    if sys.platform == "darwin":
        return True
    words = set(Path("/proc/cpuinfo").read_text().split())
    wanted = {"sse4_2", "pclmulqdq"} if platform.machine() == "x86_64" else {"crc32"}
    return wanted <= words


def main() -> int:
    """Exit status: 0 if nothing is wrong."""
    import_all("--without-extras" in sys.argv)
    faults = checksum_faults() + run_all()
    print("\n".join(faults) or f"{len(VERBS)} verbs")
    return bool(faults)


if __name__ == "__main__":
    raise SystemExit(main())
