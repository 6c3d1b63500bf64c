#!/bin/sh
# Prints the Python to build with, or says on standard error what the machine lacks and how to get it.
#
#   tools/check_machine.sh [java]     with "java": the Java that Spark needs is asked for too
#
# A name on PATH is not yet a Python: version managers leave launchers that fail. So each is run.

missing=""

lack() { # what is missing, the Debian package that brings it
    missing="$missing  - $1
      Debian, Ubuntu: apt-get install $2
"
}

probe() { # succeeds where Python $1 fulfils the statement $2
    "$1" -c "$2" >/dev/null 2>&1
}

new_enough='import sys; assert sys.version_info >= (3, 11)'
has_venv='import venv, ensurepip'
has_headers='import os, sysconfig; assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))'

python=""
second_best=""
for name in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
    probe "$name" "$new_enough" || continue
    if probe "$name" "$has_venv" && probe "$name" "$has_headers"; then
        python=$name
        break
    fi
    [ -n "$second_best" ] || second_best=$name
done

if [ -z "$python" ] && [ -n "$second_best" ]; then
    version=$("$second_best" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    probe "$second_best" "$has_venv" ||
        lack "the module venv of $second_best, for a private environment" "$version-venv"
    probe "$second_best" "$has_headers" ||
        lack "Python.h of $second_best, to compile against" "$version-dev"
elif [ -z "$python" ]; then
    lack "Python 3.11 or newer${PYTHON:+ (PYTHON=$PYTHON is not one)}" "python3 python3-venv python3-dev"
fi

if ! "${CC:-cc}" --version >/dev/null 2>&1; then
    lack "a C compiler (${CC:-cc})" "build-essential"
fi

if [ "$1" = java ]; then
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    major=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    if [ "${major:-0}" -lt 17 ]; then
        lack "Java 17 or newer, for Spark${major:+ ($java is version $major)}" "openjdk-17-jre-headless"
    fi
fi

if [ -n "$missing" ]; then
    printf 'kseg cannot be built here yet. Missing:\n%s' "$missing" >&2
    exit 1
fi
command -v "$python"
