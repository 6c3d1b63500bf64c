#!/usr/bin/env bash
# Makes the systems in which check.sh tries the wheels, below build/roots. What is there stays.
#
#   bullseye   Debian 11, glibc 2.31, with a CPython 3.11 in /opt/python that bullseye-build compiled
#   trixie     Debian 13 with its own Python
#   arm64      Debian 12 for aarch64, unpacked: qemu runs its Python
#   musl       musl of Debian 13, with a CPython 3.11 in /opt/python that zig compiled
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/release/debian.sh
ROOTS=$PWD/build/roots
PY=$PWD/.venv/bin/python
mkdir -p "$ROOTS"

system() { # name, suite, packages, options of debootstrap
    local name=$1 suite=$2 packages=$3
    shift 3
    rm -rf "${ROOTS:?}/$name"
    echo "unpacks Debian's $suite into build/roots/$name"
    debootstrap "$@" --variant=minbase --include="$packages" "$suite" "$ROOTS/$name" >"$ROOTS/$name.log" ||
        { tail -n 5 "$ROOTS/$name.log" >&2; exit 1; }
}

bullseye() {
    system bullseye-build bullseye build-essential,libbz2-dev,libffi-dev,liblzma-dev,libssl-dev,zlib1g-dev
    cp -r "$(cpython)" "$ROOTS/bullseye-build/src"
    echo "compiles CPython in build/roots/bullseye-build"
    chroot "$ROOTS/bullseye-build" bash -c 'cd /src && ./configure -q --prefix=/opt/python \
        --with-ensurepip=install --disable-test-modules && make -s -j2 && make -s install' \
        >"$ROOTS/bullseye-build.log" 2>&1 || { tail -n 5 "$ROOTS/bullseye-build.log" >&2; exit 1; }
    system bullseye bullseye libbz2-1.0,libffi7,liblzma5,libssl1.1,zlib1g
    cp -r "$ROOTS/bullseye-build/opt/python" "$ROOTS/bullseye/opt"
}

cpython() { # prints the folder of the sources of CPython 3.11
    source_of bookworm python3.11 build/sources/python3.11
    echo build/sources/python3.11
}

trixie() { system trixie trixie python3,python3-venv; }

arm64() {
    system arm64 bookworm python3 --arch=arm64 --download-only
    for package in "$ROOTS"/arm64/var/cache/apt/archives/*.deb; do
        dpkg -x "$package" "$ROOTS/arm64"
    done
}

musl() {
    local zig root=$ROOTS/musl cross=(--build=x86_64-unknown-linux-musl --host=x86_64-pc-linux-musl)
    zig=$(dirname "$("$PY" -c 'import ziglang; print(ziglang.__file__)')")/zig
    rm -rf "$root" "$ROOTS/musl-build"
    mkdir -p "$root"/{proc,dev,tmp,root} "$ROOTS/musl-build"
    (
        cd "$ROOTS/musl-build"
        apt_of trixie update
        apt_of trixie download musl
        dpkg -x musl_*.deb "$root"
        ln -s usr/lib "$root/lib" # as in a system where /usr is merged
    )
    source_of bookworm zlib build/sources/zlib
    cp -r "$(cpython)" "$ROOTS/musl-build/python"
    # Else the modules of CPython would be compiled with the headers of the machine's glibc.
    sed -i 's/^\( *\)self.add_\(multiarch\|cross_compiling\)_paths()/\1pass/' "$ROOTS/musl-build/python/setup.py"
    source_of bookworm libffi build/sources/libffi
    cp -r build/sources/zlib build/sources/libffi "$ROOTS/musl-build"
    export ZIG=$zig ZIG_TARGET=x86_64-linux-musl CC=$PWD/tools/release/zig_cc.sh
    echo "compiles CPython with musl in build/roots/musl-build"
    {
        (cd "$ROOTS/musl-build/zlib" && "$CC" -O2 -fPIC -DHAVE_UNISTD_H -c ./*.c &&
            "$CC" -shared -Wl,-soname,libz.so.1 -o libz.so ./*.o && cp libz.so "$root/usr/lib/x86_64-linux-musl/libz.so.1") &&
            (cd "$ROOTS/musl-build/libffi" &&
                ./configure -q "${cross[@]}" --prefix="$ROOTS/musl-build/ffi" --disable-shared --with-pic \
                    --disable-docs --disable-exec-static-tramp LDFLAGS=-dynamic && make -s -j2 install) &&
            cd "$ROOTS/musl-build/python" &&
            ./configure -q "${cross[@]}" --prefix=/opt/python --with-build-python="$PY" --without-ensurepip \
                --disable-test-modules --disable-ipv6 \
                CFLAGS="-fPIC -Wno-date-time" READELF="$(command -v readelf)" ac_cv_file__dev_ptmx=yes \
                ac_cv_file__dev_ptc=no CPPFLAGS="-I$ROOTS/musl-build/zlib -I$ROOTS/musl-build/ffi/include" \
                LDFLAGS="-dynamic -L$ROOTS/musl-build/zlib -L$ROOTS/musl-build/ffi/lib" &&
            make -s -j2 && make -s install DESTDIR="$root"
    } >"$ROOTS/musl.log" 2>&1 || { tail -n 5 "$ROOTS/musl.log" >&2; exit 1; }
}

need debootstrap:debootstrap qemu-aarch64-static:qemu-user-static qemu-x86_64-static:qemu-user-static
[ "$(id -u)" = 0 ] || { echo "roots are unpacked as root" >&2; exit 1; }
for name in "$@"; do
    [ -e "$ROOTS/$name/.made" ] || { $name && touch "$ROOTS/$name/.made"; }
done
