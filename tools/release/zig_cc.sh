#!/bin/sh
# The C compiler of zig for the target in ZIG_TARGET. ZIG is the binary itself: setuptools calls the
# compiler a hundred times, and `python -m ziglang` would start Python each time.
#
# Its linker cannot hide the functions of archives; so it binds the kernels to these functions.
for argument; do
    shift
    [ "$argument" != -Wl,--exclude-libs,ALL ] || argument=-Wl,-Bsymbolic
    set -- "$@" "$argument"
done
exec "$ZIG" cc -target "$ZIG_TARGET" "$@"
