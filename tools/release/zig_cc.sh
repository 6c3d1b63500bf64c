#!/bin/sh
# The C compiler of zig for the target in ZIG_TARGET. ZIG is the binary itself: setuptools calls the
# compiler a hundred times, and `python -m ziglang` would start Python each time.
exec "$ZIG" cc -target "$ZIG_TARGET" "$@"
