"""The extension list and compiler flags; all metadata lives in pyproject.toml.

Switches (environment): KSEG_DEBUG=1 turns Cython's checks on and optimisation off,
KSEG_SANITIZE=address,undefined builds for the sanitizers, KSEG_NO_KERNELS=1 leaves the
extensions out (an editable install of the rest, where make builds them in place). How much the
compiler optimises is -O3, for the sanitizers -O1, unless CFLAGS says otherwise.
"""

from __future__ import annotations

import os
import sys
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("KSEG_DEBUG") == "1"
SANITIZE = os.environ.get("KSEG_SANITIZE", "")

compile_args = ["-fvisibility=hidden", "-Wall", "-Wno-unused-function", "-Wno-unreachable-code"]
link_args = []
asked_for = [flag for flag in os.environ.get("CFLAGS", "").split() if flag.startswith("-O")]
if SANITIZE:
    compile_args += ["-g1", *(asked_for or ["-O1"])]
    compile_args += ["-fno-omit-frame-pointer", f"-fsanitize={SANITIZE}", "-fno-wrapv"]
    link_args += [f"-fsanitize={SANITIZE}"]
elif DEBUG:
    compile_args += ["-g", "-O0"]
else:
    compile_args += [*(asked_for or ["-O3"]), "-g0"]
    if sys.platform == "linux":
        link_args += ["-s"]  # stripped: the wheel carries no symbols

CHECKS = DEBUG
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": CHECKS,
    "wraparound": False,
    "initializedcheck": CHECKS,
    "cdivision": True,
    "autotestdict": False,
    "embedsignature": True,
    "embedsignature.format": "python",
}


def extension(name: str, *sources: str) -> Extension:
    """One kernel module; every one may call the CRC code, so headers and flags are shared."""
    return Extension(
        f"kseg.{name}",
        [f"kseg/{name.replace('.', '/')}.pyx", *sources],
        include_dirs=["kseg/csrc"],
        depends=sorted(glob("kseg/csrc/*.h")),
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )


NO_KERNELS = os.environ.get("KSEG_NO_KERNELS") == "1"
KERNELS = [
    extension("_core", "kseg/csrc/crc.c"),
    extension("_kernels.blocks"),
    extension("_kernels.encode"),
    extension("_kernels.fetch"),
    extension("_kernels.frames"),
    extension("_kernels.index"),
    extension("_kernels.inflate"),
    extension("_kernels.keymap"),
    extension("_kernels.legacy"),
    extension("_kernels.json"),
    extension("_kernels.located"),
    extension("_kernels.offset_map"),
    extension("_kernels.placement"),
    extension("_kernels.reader"),
    extension("_kernels.rows"),
    extension("_kernels.search"),
    extension("_kernels.text"),
    extension("_kernels.validate"),
    extension("_kernels.walk"),
]

#: Cython's own code, above all its memory views. Compiled once rather than into each kernel, since
#: that takes less than half of the time, and the wheel has two thirds of the size.
SHARED = "kseg._cyutility"
KERNELS.append(
    Extension(
        SHARED,
        ["kseg/_cyutility.c"],  # cythonize writes it, below build_dir
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
)

#: Kernels are translated and compiled side by side.
PROCESSORS = os.cpu_count() or 1

setup(
    options={"build_ext": {"parallel": PROCESSORS}},
    ext_modules=cythonize(
        [] if NO_KERNELS else KERNELS,
        nthreads=0 if NO_KERNELS else PROCESSORS,
        compiler_directives=DIRECTIVES,
        shared_utility_qualified_name=None if NO_KERNELS else SHARED,
        build_dir="build/debug/generated" if DEBUG else "build/generated",
    ),
)
