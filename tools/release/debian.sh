# Functions for the scripts beside this file: what they take from Debian. Sourced, not run.

DEBIAN=$PWD/build/debian # lists of packages, and sources

need() { # each argument is COMMAND:PACKAGE, the package of Debian that brings the command
    local each lacking=()
    for each; do
        command -v "${each%%:*}" >/dev/null || lacking+=("${each#*:}")
    done
    [ ${#lacking[@]} = 0 ] || { echo "missing; Debian, Ubuntu: apt-get install ${lacking[*]}" >&2; exit 1; }
}

apt_of() { # suite, arguments of apt-get: its lists lie in build/, those of the machine stay as they are
    local suite=$1 site key=/usr/share/keyrings/debian-archive-keyring.gpg
    shift
    site=$(apt-get indextargets --format '$(SITE)' | grep -m 1 '/debian$')
    mkdir -p "$DEBIAN/$suite"/{lists,cache/archives}/partial
    printf "%s [signed-by=$key] $site $suite main\n" deb deb-src >"$DEBIAN/$suite/sources.list"
    apt-get -qq -o Dir::Etc::SourceList="$DEBIAN/$suite/sources.list" -o Dir::Etc::SourceParts=- \
        -o Dir::State::Lists="$DEBIAN/$suite/lists" -o Dir::Cache="$DEBIAN/$suite/cache" \
        -o APT::Sandbox::User=root "$@"
}

source_of() { # suite, package, folder: its source, as its authors published it
    local folder=$PWD/$3
    [ -e "$folder" ] && return
    (
        mkdir -p "$DEBIAN/$1/source" "$folder.part"
        apt_of "$1" update
        cd "$DEBIAN/$1/source"
        apt_of "$1" source --download-only "$2"
        tar -x --strip-components=1 -C "$folder.part" -f "$2"_*.orig.tar.*z*
        mv "$folder.part" "$folder"
    )
}
