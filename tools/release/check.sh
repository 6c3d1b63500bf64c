#!/usr/bin/env bash
# Tries the wheels of dist/wheels on the systems of roots.sh, and checks the files of the release.
#
#   tools/release/check.sh [files] [extras] [bullseye] [trixie] [v2] [aarch64] [musl]    all of them, or those named
#
# No system has a compiler or a network: what pip installs there was downloaded before.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/release/debian.sh
ROOTS=$PWD/build/roots
PY=$PWD/.venv/bin/python
TESTS="google-crc32c hypothesis pytest pytest-timeout"
# Left out there: the tests of how libraries of the system are found. They compile some, or need the system's.
PYTEST="pytest -q -p no:benchmark -p no:cacheprovider
    --deselect tests/unit/_kernels/test_inflate.py::test_libraries_are_found_by_the_loader
    --deselect tests/unit/_kernels/test_inflate.py::test_no_library_is_opened
    --deselect tests/unit/_kernels/test_inflate.py::test_a_library_"
export PIP_DISABLE_PIP_VERSION_CHECK=1

files() { # the settings of cibuildwheel, the workflows
    "$PY" -m validate_pyproject pyproject.toml
    "$PY" -m cibuildwheel --print-build-identifiers --platform linux --archs x86_64,aarch64 | xargs
    "$PY" -m cibuildwheel --print-build-identifiers --platform macos --archs x86_64,arm64 | xargs
    "$PY" -m check_jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
    "$PY" -m check_jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
    "$PY" -m check_jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
    .venv/bin/zizmor --offline --quiet .github/workflows
}

wheel_for() { # version of Python, platform: prints the wheel
    local wheel
    wheel=$(echo dist/wheels/kseg-*-"cp${1/./}-cp${1/./}"-*"$2"*.whl)
    [ -e "$wheel" ] || { echo "no wheel of CPython $1 for $2: to build it, make wheels needs python$1 with its headers" >&2; exit 1; }
    echo "$wheel"
}

trial() { # root: makes it, and puts the tests of the sdist into its folder /trial
    tools/release/roots.sh "$1"
    rm -rf "$ROOTS/$1/trial"
    mkdir "$ROOTS/$1/trial"
    tar -x --strip-components=1 -C "$ROOTS/$1/trial" --wildcards --exclude='*/data/fixtures' \
        -f dist/kseg-*.tar.gz 'kseg-*/tests' 'kseg-*/tools' 'kseg-*/pyproject.toml'
}

download() { # root, version of Python, platforms of wheels: kseg and what its tests need, for its pip
    local root=$1 version=$2 wheel platform options=()
    shift 2
    wheel=$(wheel_for "$version" "$1")
    for platform; do options+=(--platform "$platform"); done
    trial "$root"
    # shellcheck disable=SC2086
    "$PY" -m pip download -q --only-binary=:all: --python-version "$version" "${options[@]}" \
        -d "$ROOTS/$root/trial/wheels" "$wheel" $TESTS
}

glibc() { # architecture: platforms of pip up to glibc 2.31
    local minor
    echo "manylinux2014_$1"
    for minor in $(seq 17 31); do echo "manylinux_2_${minor}_$1"; done
}

inside() { # root, command: there, with /proc and /dev, and nothing of the environment
    unshare --mount --pid --fork bash -euc 'root=$1; shift
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 chroot "$root" "$@"' inside "$ROOTS/$1" "${@:2}"
}

WITHOUT_EXTRAS='
for compiler in cc gcc clang; do ! command -v $compiler || exit 1; done
. /etc/os-release; echo "$PRETTY_NAME, $($1 --version), $(ldd --version | sed -n "s/^ldd //p")"
$1 -m venv --clear /venv
cd /trial
/venv/bin/python -m pip install -q --no-index --find-links wheels kseg
/venv/bin/kseg --version
/venv/bin/kseg demo >demo.txt
tail -n 2 demo.txt
/venv/bin/python tools/check_installed.py --without-extras
/venv/bin/python -m pip install -q --no-index --find-links wheels $2
cd tests/unit
exec /venv/bin/python -m $3 @/trial/tools/kernel_tests.txt'

bullseye() {
    # shellcheck disable=SC2046
    download bullseye 3.11 $(glibc x86_64)
    inside bullseye sh -euc "$WITHOUT_EXTRAS" sh /opt/python/bin/python3.11 "$TESTS" "$PYTEST"
}

trixie() {
    # shellcheck disable=SC2046
    download trixie 3.13 $(glibc x86_64)
    inside trixie sh -euc "$WITHOUT_EXTRAS" sh python3 "$TESTS" "$PYTEST"
}

IMPORTS='import sys; sys.path.insert(0, "/trial/tools"); import check_installed, kseg._core, platform
check_installed.import_all(True); print(platform.machine(), kseg._core.crc_variant())'

# Left out under qemu: the tests that start a Python, since Linux would not start it in qemu.
IN_ONE_PROCESS="not small_stack and not interrupt_inside and not environment_variable and not loader_would_look"

emulated() { # root, emulator, python: imports and kernel tests
    local root=$1 emulator=$2 python=$3 work=$ROOTS/$1/trial
    cp "/usr/bin/${emulator%% *}" "$work"
    # shellcheck disable=SC2086
    inside "$root" /trial/$emulator "$python" -c "$IMPORTS"
    # shellcheck disable=SC2046,SC2086
    inside "$root" /trial/$emulator "$python" -m $PYTEST -k "$IN_ONE_PROCESS" -c /trial/pyproject.toml \
        $(sed 's|^|/trial/tests/unit/|' tools/kernel_tests.txt)
}

v2() { # what trixie has installed, on a processor without AVX, PCLMULQDQ and what came later
    emulated trixie "qemu-x86_64-static -cpu Nehalem" /venv/bin/python
}

install_from_here() { # root, folder, packages, platforms: for Python 3.11, where no pip can run
    local root=$1 site=$ROOTS/$1/$2 packages=$3 wheel platform options=()
    shift 3
    wheel=$(wheel_for 3.11 "$1")
    for platform; do options+=(--platform "$platform"); done
    rm -rf "$site"
    trial "$root"
    # shellcheck disable=SC2086
    "$PY" -m pip install -qq --only-binary=:all: --python-version 3.11 "${options[@]}" \
        --target "$site" --no-deps "$wheel"
    # shellcheck disable=SC2086
    "$PY" -m pip install -qq --only-binary=:all: --python-version 3.11 "${options[@]}" \
        --target "$site" $packages
}

requirements() { # what kseg requires, but for the packages named
    "$PY" - "$@" <<'PROGRAM'
import re, sys, tomllib
for line in tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]:
    name, marker = re.match(r"[\w.-]+", line)[0], line.partition(";")[2]
    if name not in sys.argv[1:] and ("<" in marker or not marker):
        print(name)
PROGRAM
}

aarch64() {
    # shellcheck disable=SC2046
    install_from_here arm64 usr/local/lib/python3.11/dist-packages "$(requirements) $TESTS" $(glibc aarch64)
    emulated arm64 qemu-aarch64-static /usr/bin/python3
}

musl() { # lz4 has no wheel for musl: cramjam does its work
    local python=/opt/python/bin/python3.11
    install_from_here musl opt/python/lib/python3.11/site-packages "$(requirements lz4) $TESTS" \
        musllinux_1_2_x86_64 musllinux_1_1_x86_64
    printf '#!%s\nfrom kseg.cli.main import main\nmain()\n' $python >"$ROOTS/musl/opt/python/bin/kseg"
    chmod +x "$ROOTS/musl/opt/python/bin/kseg"
    inside musl /opt/python/bin/kseg --version
    inside musl /opt/python/bin/kseg demo | tail -n 2
    inside musl $python /trial/tools/check_installed.py --without-extras
    # The tests need lz4; zig compiles it. google-crc32c, which test_core.py compares with, is not to be had.
    ZIG=$(dirname "$("$PY" -c 'import ziglang; print(ziglang.__file__)')")/zig ZIG_TARGET=x86_64-linux-musl \
        _PYTHON_HOST_PLATFORM=linux-x86_64 SETUPTOOLS_EXT_SUFFIX=.cpython-311-x86_64-linux-musl.so \
        PKG_CONFIG_LIBDIR=/nowhere CC=$PWD/tools/release/zig_cc.sh \
        LDSHARED="$PWD/tools/release/zig_cc.sh -shared" CFLAGS=-O3 \
        "$PY" -m pip wheel -q --no-deps --no-binary lz4 -w "$ROOTS/musl/trial/lz4" lz4
    "$PY" -m zipfile -e "$ROOTS"/musl/trial/lz4/*.whl "$ROOTS/musl/opt/python/lib/python3.11/site-packages"
    # shellcheck disable=SC2046,SC2086
    inside musl $python -m $PYTEST -c /trial/pyproject.toml \
        $(sed '/test_core/d; s|^|/trial/tests/unit/|' tools/kernel_tests.txt)
}

extras() { # each extra of the wheel, in a fresh environment, from the index alone
    local extra venv wheel
    wheel=$(wheel_for 3.11 x86_64)
    for extra in $("$PY" -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"])'); do
        venv=$(mktemp -d)
        "$PY" -m venv "$venv"
        "$venv/bin/python" -m pip -q install --no-cache-dir "$PWD/$wheel[$extra]"
        "$venv/bin/python" -m pip check
        (cd "$venv" && bin/kseg demo -o data && bin/kseg verify data)
        rm -rf "$venv"
        echo "kseg[$extra] installs"
    done
}

[ $# -gt 0 ] || set -- files extras bullseye trixie v2 aarch64 musl
for name in "$@"; do
    started=$SECONDS
    echo "=== $name"
    $name
    echo "=== $name took $((SECONDS - started)) s"
done
