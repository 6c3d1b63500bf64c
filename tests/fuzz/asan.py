"""The fuzzer and the tests over kernels built for the sanitizers: `python -m tests.fuzz.asan`.

A copy of the tree is built with AddressSanitizer and UndefinedBehaviorSanitizer, below `build/`,
so that the kernels in place stay the fast ones. Exit status 1 says that a sanitizer, the fuzzer or
a test complained.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "asan"
PARTS = (
    "kseg",
    "pyspark_kseg",
    "tests",
    "setup.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "licenses",
)
SANITIZERS = "address,undefined"
TESTS = ("tests/unit", "tests/conformance", "tests/fuzz")
#: Run in any case: kernels for bytes from outside that the fuzzer does not reach.
DECODERS = (
    "tests/unit/_kernels/test_avro.py",
    "tests/unit/_kernels/test_json_struct.py",
    "tests/unit/_kernels/test_needle.py",
    "tests/unit/_kernels/test_protobuf.py",
    "tests/fuzz/test_typed.py",
)
#: Batches that `fuzz_columns` is given for each second of the fuzzer before it.
CASES_A_SECOND = 100
#: Java goes without sanitizers.
NOT_HERE = "not slow and not spark"


def copy_tree(copy: Path = COPY) -> None:
    """Bring the sources over; objects that are already built there stay for the next time."""
    copy.mkdir(parents=True, exist_ok=True)
    # Generated C and built modules of the tree are neither wanted nor overwritten.
    kept_away = shutil.ignore_patterns("*.so", "__pycache__", "_*.c", "*.html", ".pytest_cache")
    for part in PARTS:
        source, target = ROOT / part, copy / part
        if source.is_dir():
            _empty(target)
            shutil.copytree(source, target, ignore=kept_away, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy2(source, target)


def _empty(directory: Path) -> None:
    """Drop what may have left the tree since; modules built here stay."""
    for path in directory.rglob("*"):
        if path.is_file() and path.suffix != ".so":
            path.unlink()


def build(copy: Path = COPY, sanitizers: str = SANITIZERS) -> None:
    """Compile the kernels in the copy."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    environment = os.environ | {"KSEG_SANITIZE": sanitizers}
    subprocess.run(command, cwd=copy, env=environment, check=True)


def library(name: str) -> str:
    """Path of the compiler's run-time library."""
    answer = subprocess.run(
        [os.environ.get("CC", "gcc"), f"-print-file-name={name}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.strip()


def sanitized() -> dict[str, str]:
    """An environment in which Python loads modules built for the sanitizers."""
    return os.environ | {
        "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}",
        # CPython frees little before it ends, so leaks cannot be told from its habits.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
        # Python's own allocator would hide a byte read beyond an object.
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(COPY),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def run(*arguments: str) -> bool:
    """Run Python in the copy, sanitized; whether all was well."""
    print("+ python", *arguments, flush=True)
    return subprocess.run([sys.executable, *arguments], cwd=COPY, env=sanitized()).returncode == 0


def main() -> int:
    """Build, fuzz, test."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", default="60", help="how long to fuzz")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--no-tests", action="store_true", help="fuzz, and test decoders alone")
    options = parser.parse_args()
    copy_tree()
    build()
    where = "import kseg._core as c, sys; sys.exit(not c.__file__.startswith(sys.argv[1]))"
    well = [run("-c", where, str(COPY))]
    fuzz = ("--seconds", options.seconds, "--seed", options.seed, "--no-memory-limit")
    well.append(run("-m", "tests.fuzz.fuzz_read", *fuzz, "--save", str(ROOT / "build" / "fuzz")))
    cases = ("--cases", str(CASES_A_SECOND * int(options.seconds)), "--seed", options.seed)
    well.append(run("-m", "tests.fuzz.fuzz_columns", *cases))
    tests = DECODERS if options.no_tests else TESTS
    plugins = ("-p", "no:cacheprovider", "-p", "no:benchmark")
    well.append(run("-m", "pytest", "-q", *plugins, "-m", NOT_HERE, *tests))
    return int(not all(well))


if __name__ == "__main__":
    sys.exit(main())
