#!/bin/sh
# Compiles liblz4, libdeflate and libzstd (what inflates) into archives, which setup.py links into the kernels.
#
#   tools/release/codecs.sh PREFIX [FOLDER]    the archives lie in PREFIX/lib, the headers in PREFIX/include
#
# FOLDER holds the sources as lz4, libdeflate and zstd; what is not there is fetched as a commit of git.
# CC and CFLAGS say with which compiler. Position-independent, since the kernels are shared objects.
set -eu
prefix=$1
sources=${2:-$(mktemp -d)}
mkdir -p "$prefix/lib" "$prefix/include"

fetch() { # folder, repository, commit
    [ -d "$sources/$1" ] && return
    git init -q "$sources/$1"
    git -C "$sources/$1" fetch -q --depth 1 "$2" "$3"
    git -C "$sources/$1" checkout -q "$3"
}

archive() { # name, folder of the sources, patterns of files
    objects=$(mktemp -d)
    (
        cd "$sources/$2"
        # shellcheck disable=SC2086
        for file in $3; do
            ${CC:-cc} ${CFLAGS:--O3} -fPIC -fvisibility=hidden -I. -Ilib -c "$file" \
                -o "$objects/$(echo "$file" | tr / _).o"
        done
    )
    rm -f "$prefix/lib/$1.a"
    ar rcs "$prefix/lib/$1.a" "$objects"/*.o
    rm -r "$objects"
}

fetch lz4 https://github.com/lz4/lz4 ebb370ca83af193212df4dcbadcc5d87bc0de2f0                # v1.10.0
fetch libdeflate https://github.com/ebiggers/libdeflate c8c56a20f8f621e6a966b716b31f1dedab6a41e3 # v1.25
fetch zstd https://github.com/facebook/zstd 794ea1b0afca0f020f4e57b6732332231fb23c70             # v1.5.6
archive liblz4 lz4 lib/lz4.c
archive libdeflate libdeflate "lib/*.c lib/*/cpu_features.c"
CFLAGS="${CFLAGS:--O3} -DZSTD_DISABLE_ASM -DZSTD_LEGACY_SUPPORT=0"
archive libzstd zstd "lib/common/*.c lib/decompress/*.c"
cp "$sources/lz4/lib/lz4.h" "$sources/libdeflate/libdeflate.h" "$sources"/zstd/lib/*.h "$prefix/include"
