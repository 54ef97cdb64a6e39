#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Sees that the Debian or Ubuntu packages of one or more sets are there: build, demo, lint, ci.
# What is missing is named, with what it is for, and then installed with apt-get (through sudo when
# not root). When nothing is missing, nothing is printed and nothing is asked of the network.
#
#     tools/deps.sh build demo         install what is missing
#     PLAIT_INSTALL=no tools/deps.sh   only name what is missing; exit status 1 when anything is
#
# On systems without dpkg the tools and libraries themselves are looked for, and what is missing is
# named; installing it is left to the reader.
set -eu

# Package, what it is for, and how to find it where there is no dpkg: a command, or pkg-config's
# name after "pc:", or a header after "h:".
list()
{
    case $1 in
    build) cat <<'END'
gcc|C compiler|cc
libc6-dev|C library headers|h:stdlib.h
cmake|build system|cmake
ninja-build|build system|ninja
pkg-config|finds libraries|pkg-config
libyaml-dev|configuration files|pc:yaml-0.1
libcjson-dev|safetensors headers|pc:libcjson
libxxhash-dev|checksums|pc:libxxhash
libpcre2-dev|text splitting|pc:libpcre2-8
libopenmpi-dev|transport between processes|mpicc
openmpi-bin|mpirun|mpirun
END
        ;;
    demo) echo 'bible-kjv|the text that the demo trains on|bible' ;;
    lint) cat <<'END'
python3|tools/lint|python3
binutils|nm, for the layer law|nm
g++|include/plait.h is checked as C++|g++
END
        ;;
    ci) list lint; cat <<'END'
make|the front door|make
git|tools/lint reads the list of files|git
clang|second compiler|clang
libclang-rt-14-dev|sanitizers and fuzzer of clang|clang
END
        ;;
    *) echo "deps: no set $1; use build, demo, lint, ci" >&2; exit 2 ;;
    esac
}

have_without_dpkg()
{
    case $1 in
    pc:*) pkg-config --exists "${1#pc:}" 2>/dev/null ;;
    h:*) printf '#include <%s>\n' "${1#h:}" | cc -E -x c - >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

have()
{
    if command -v dpkg >/dev/null 2>&1; then
        case $(dpkg -s "$1" 2>/dev/null) in
        *'Status: install ok installed'*) return 0 ;;
        esac
        # pkgconf replaces pkg-config on newer systems.
        [ "$1" = pkg-config ] && command -v pkg-config >/dev/null 2>&1
    else
        have_without_dpkg "$2"
    fi
}

[ $# -gt 0 ] || set -- build
wanted=$(for set in "$@"; do list "$set" || exit; done)
missing=
while IFS='|' read -r package purpose probe; do
    if ! have "$package" "$probe"; then
        [ -n "$missing" ] || echo "These packages are missing:"
        printf '    %-20s %s\n' "$package" "$purpose"
        missing="$missing $package"
    fi
done <<END
$wanted
END
[ -n "$missing" ] || exit 0

if [ "${PLAIT_INSTALL:-yes}" = no ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "deps: these are Debian 12's names; install what gives the same here," \
        "then run this again" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "deps: not root and no sudo; as root, run: apt-get install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi
echo "Installing them now: $as_root apt-get install$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Output is shown only when something goes wrong: package managers say a lot when all is well.
run()
{
    $as_root env DEBIAN_FRONTEND=noninteractive "$@" >"$log" 2>&1
}
run apt-get -q update || echo "deps: apt-get update failed; trying with the lists at hand" >&2
# shellcheck disable=SC2086  # a list of names
if ! run apt-get -q install -y --no-install-recommends $missing; then
    tail -n 30 "$log" >&2
    echo "deps: apt-get install failed, its last lines are above; needed are:$missing" >&2
    exit 1
fi
echo "Installed."
