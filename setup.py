"""The extension list and compiler flags; all metadata lives in pyproject.toml.

Switches (environment): KSEG_DEBUG=1 turns Cython's checks on and optimisation off,
KSEG_SANITIZE=address,undefined builds for the sanitizers, KSEG_NO_KERNELS=1 leaves the
extensions out (an editable install of the rest, where make builds them in place). How much the
compiler optimises is -O3, for the sanitizers -O1, unless CFLAGS says otherwise.

`kseg._kernels.inflate` links those of liblz4, libdeflate and libzstd whose archives and headers the
compiler finds (Debian: liblz4-dev, libdeflate-dev, libzstd-dev), or that lie below the directory
KSEG_CODECS_PREFIX, in lib and include. KSEG_CODECS_LINK=none links no library, =static refuses to
build without liblz4 and libdeflate.
"""

from __future__ import annotations

import os
import subprocess
import sys
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

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
    # Nothing unwinds through kernels: the tables for that would be a twentieth of the wheel.
    compile_args += [*(asked_for or ["-O3"]), "-g0", "-fno-asynchronous-unwind-tables"]
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
    extension("_kernels.avro"),
    extension("_kernels.blocks"),
    extension("_kernels.encode"),
    extension("_kernels.frames"),
    extension("_kernels.index"),
    extension("_kernels.inflate"),
    extension("_kernels.keymap"),
    extension("_kernels.legacy"),
    extension("_kernels.json"),
    extension("_kernels.json_struct"),
    extension("_kernels.located"),
    extension("_kernels.needle"),
    extension("_kernels.offset_map"),
    extension("_kernels.placement"),
    extension("_kernels.protobuf"),
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
        # No loop over records is in it.
        extra_compile_args=[*compile_args, *(["-O2"] if "-O3" in compile_args else [])],
        extra_link_args=link_args,
    )
)

LINK = os.environ.get("KSEG_CODECS_LINK", "")
PREFIX = os.environ.get("KSEG_CODECS_PREFIX", "")
#: By library that can be linked: a program that compiles where it is there, and new enough for
#: `inflate.pyx`, and links where its archive holds position-independent code.
CODECS = {
    "lz4": """#include <lz4.h>
        int version[LZ4_VERSION_NUMBER >= 10803 ? 1 : -1];
        int probe(const char *data, char *to) { return LZ4_decompress_safe(data, to, 9, 9); }""",
    "deflate": """#include <libdeflate.h>
        void *probe(void) { return libdeflate_alloc_decompressor(); }""",
    "zstd": """#include <zstd.h>
        int version[ZSTD_VERSION_NUMBER >= 10506 ? 1 : -1];
        void *probe(void) { return ZSTD_createDCtx(); }""",
}


class BuildKernels(build_ext):
    """Links what there is of the codec libraries before it compiles."""

    def build_extensions(self) -> None:
        """Find the libraries, and build."""
        for kernel in self.extensions:
            if kernel.name == "kseg._kernels.inflate" and LINK != "none":
                linked = [name for name in CODECS if self.link(kernel, name)]
                print("codec libraries linked into it:", *(linked or ["none"]))
                if LINK == "static" and not {"lz4", "deflate"} <= set(linked):
                    raise SystemExit(
                        "KSEG_CODECS_LINK=static: no liblz4.a or no libdeflate.a that links with "
                        "position-independent code; Debian: apt install liblz4-dev libdeflate-dev"
                    )
        super().build_extensions()

    def link(self, kernel: Extension, name: str) -> bool:
        """Link a library into the kernel, if that can be done."""
        archive = self.archive(f"lib{name}.a")
        if not archive:
            return False
        include = [f"{PREFIX}/include"] if PREFIX else []
        # Its functions stay inside, and no library that the process has open takes their place.
        hidden = ["-Wl,--exclude-libs,ALL"] if sys.platform == "linux" else []
        with TemporaryDirectory() as place:
            probe = Path(place, "probe.c")
            probe.write_text(CODECS[name])
            whole = ["-Wl,-z,defs"] if hidden else []  # the archive lacks nothing of its own
            options = ["-fPIC", *(f"-I{path}" for path in include), *hidden, *whole]
            command = [*self.compiler.linker_so, *options, str(probe), archive, "-o", place + "/so"]
            if subprocess.run(command, capture_output=True).returncode != 0:
                return False
        kernel.define_macros.append((f"KSEG_LINKED_{name.upper()}", "1"))
        kernel.include_dirs = [*kernel.include_dirs, *include]
        kernel.extra_objects.append(archive)
        kernel.extra_link_args = [*kernel.extra_link_args, *hidden]
        return True

    def archive(self, file: str) -> str:
        """Path of a library's archive; empty where there is none."""
        if PREFIX:
            return min(glob(f"{PREFIX}/lib*/**/{file}", recursive=True), default="")
        command = [*self.compiler.compiler, f"-print-file-name={file}"]
        found = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        return found if os.path.isabs(found) else ""


#: Kernels are translated and compiled side by side.
PROCESSORS = os.cpu_count() or 1

setup(
    cmdclass={"build_ext": BuildKernels},
    options={"build_ext": {"parallel": PROCESSORS}},
    ext_modules=cythonize(
        [] if NO_KERNELS else KERNELS,
        nthreads=0 if NO_KERNELS else PROCESSORS,
        compiler_directives=DIRECTIVES,
        shared_utility_qualified_name=None if NO_KERNELS else SHARED,
        build_dir="build/debug/generated" if DEBUG else "build/generated",
    ),
)
