#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the build needs and is missing, with apt; says nothing when all is there.
# Usage: scripts/setup.sh [build|package|test|all]   (build: compile and run; package: also make Debian
# packages; test: also the tests' tools; all: also AFL++)
# The tests want Python's virtual environments and Node with npm for clients, Chromium for the page,
# zsh and fish for their completion, debhelper, debootstrap and lintian for packages, clang for
# fuzzing, clang-tidy and the format check, and a cross compiler and an emulator for the kernels of
# ARM; what of these cannot be had is skipped by the tests with a word.
set -eu
what=${1:-build}
cd "$(dirname "$0")/.."

missing=()
need_command() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need_library() { pkg-config --exists "$1" 2>/dev/null || missing+=("$2"); }

need_command gcc build-essential
need_command cmake cmake
need_command ninja ninja-build
need_command pkg-config pkg-config
need_library libpcre2-8 libpcre2-dev
need_library libutf8proc libutf8proc-dev
need_library json-c libjson-c-dev
need_library libevent_core libevent-dev
need_library libedit libedit-dev
need_library libcurl libcurl4-openssl-dev
need_library cmocka libcmocka-dev
need_command scdoc scdoc
if [ "$what" = package ]; then
    need_command dh debhelper
    dpkg -s build-essential >/dev/null 2>&1 || missing+=(build-essential) # dpkg checks for it by name
elif [ "$what" != build ]; then
    need_command python3 python3
    need_command curl curl
    need_command ps procps
    need_command git git
fi

apt_get() {
    if [ "$(id -u)" = 0 ]; then
        DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
    else
        sudo DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
    fi
}

can_install() {
    command -v apt-get >/dev/null 2>&1 && { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null 2>&1; }
}

have_clang() {
    local name
    for name in clang-19 clang-18 clang-17 clang-16 clang-15 clang-14 clang; do
        command -v "$name" >/dev/null 2>&1 && return 0
    done
    return 1
}

# The newest packaged clang with its run-time library; failure is no error.
install_clang() {
    local version
    for version in 19 18 17 16 15 14; do
        [ -n "$(apt-cache madison "clang-$version" 2>/dev/null)" ] || continue
        local packages=("clang-$version" "clang-tidy-$version")
        [ -z "$(apt-cache madison "libclang-rt-$version-dev")" ] ||
            packages+=("libclang-rt-$version-dev")
        [ -z "$(apt-cache madison clang-format-19)" ] || packages+=(clang-format-19)
        apt_get install -y --no-install-recommends "${packages[@]}" >/dev/null || true
        return 0
    done
}

# AFL++ and the sanitizers of the clang that it was built with; failure is no error.
install_afl() {
    local version
    apt_get install -y --no-install-recommends afl++ >/dev/null || return 0
    version=$(afl-clang-fast --version 2>/dev/null | sed -n 's/.*clang version \([0-9]*\).*/\1/p')
    [ -z "$(apt-cache madison "libclang-rt-$version-dev")" ] ||
        apt_get install -y --no-install-recommends "libclang-rt-$version-dev" >/dev/null || true
}

# A compiler for 64-bit ARM and an emulator to run what it makes (scripts/test_arm.sh), on a machine
# of another kind; ten seconds. Failure is no error.
have_arm() {
    [ "$(uname -m)" != aarch64 ] || return 0
    command -v aarch64-linux-gnu-gcc >/dev/null 2>&1 || return 1
    command -v qemu-aarch64 >/dev/null 2>&1 || command -v qemu-aarch64-static >/dev/null 2>&1
}

install_arm() {
    apt_get install -y --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
        qemu-user >/dev/null || true
}

# Packages from PyPI and npm go to folders below build/. Failure is no error.
have_venv() { python3 -c 'import ensurepip, venv' 2>/dev/null; }
install_venv() { apt_get install -y --no-install-recommends python3-venv >/dev/null || true; }

have_node() { command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1; }
install_node() { apt_get install -y --no-install-recommends nodejs npm >/dev/null || true; }

# The shells whose completion is tested. Failure is no error.
have_shells() { command -v zsh >/dev/null 2>&1 && command -v fish >/dev/null 2>&1; }
install_shells() { apt_get install -y --no-install-recommends zsh fish >/dev/null || true; }

# For Debian packages and the roots that they are tried in, on the releases where scripts/test_deb.sh
# has them. Failure is no error.
have_deb() {
    case $(. /etc/os-release && echo "${VERSION_CODENAME:-}") in
    bookworm | trixie) { command -v dh && command -v debootstrap && command -v lintian; } >/dev/null 2>&1 ;;
    esac
}
install_deb() {
    apt_get install -y --no-install-recommends build-essential debhelper debootstrap lintian >/dev/null || true
}

# For the tests of the page. Failure is no error.
have_browser() { command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1; }

install_browser() {
    [ -z "$(apt-cache madison chromium)" ] ||
        apt_get install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null || true
}

if [ ${#missing[@]} -gt 0 ]; then
    if ! can_install; then
        echo "setup: install these packages, then try again: ${missing[*]}" >&2
        exit 1
    fi
    echo "setup: installing ${missing[*]}" >&2
    said=$(mktemp)
    apt_get update >"$said" 2>&1 || true # what was fetched earlier may do
    if ! apt_get install -y --no-install-recommends "${missing[@]}" >>"$said" 2>&1; then
        tail -n 3 "$said" >&2
        echo "setup: cannot install ${missing[*]}; without them the engine alone can be built" \
            "(preset engine or cuda-engine, see docs/building.md)" >&2
        rm -f "$said"
        exit 1
    fi
    rm -f "$said"
fi
extra=()
if [ "$what" != build ] && [ "$what" != package ] && can_install; then
    have_clang || extra+=(clang)
    have_arm || extra+=(arm)
    have_venv || extra+=(venv)
    have_node || extra+=(node)
    have_browser || extra+=(browser)
    have_shells || extra+=(shells)
    have_deb || extra+=(deb)
    [ "$what" != all ] || command -v afl-clang-fast >/dev/null 2>&1 || extra+=(afl)
fi
if [ ${#extra[@]} -gt 0 ]; then
    echo "setup: installing for the tests: ${extra[*]}" >&2
    [ ${#missing[@]} -gt 0 ] || apt_get update >/dev/null 2>&1 || true
fi
for name in "${extra[@]}"; do "install_$name"; done
