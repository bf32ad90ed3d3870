# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Clean roots of Debian releases, sourced by build-deb.sh and scripts/test_deb.sh. A root is made
# once by debootstrap and kept as an archive; each use unpacks it. Commands run in it with mounts and
# processes of their own, so nothing stays mounted and nothing goes on when they end.
roots_cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/coppice-tests
roots_mirror=http://deb.debian.org/debian

# roots_need SUITE [NAME]: says why a root cannot be had, and fails then.
roots_need() {
    if [ "$(id -u)" != 0 ]; then
        echo "no root rights"
    elif ! command -v debootstrap >/dev/null; then
        echo "debootstrap is not installed"
    elif [ ! -s "$roots_cache/$1-${2:-clean}.tar" ] &&
        ! curl -sf --max-time 20 -o /dev/null "$roots_mirror/dists/$1/Release"; then
        echo "$roots_mirror cannot be reached"
    else
        return 0
    fi
    return 1
}

# roots_run FOLDER COMMAND...: runs a command in a root.
roots_run() {
    local root=$1
    shift
    unshare --mount --pid --fork --kill-child chroot "$root" /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}

# roots_remove FOLDER: refuses where something is mounted below it.
roots_remove() {
    if grep -qF " $1/" /proc/self/mounts; then
        echo "not removed, since something is mounted there: $1" >&2
        return 1
    fi
    rm -rf --one-file-system "$1"
}

# roots_unpack SUITE FOLDER [NAME PACKAGE...]: a root of a release, with these packages, in an empty
# folder. NAME is that of the kept archive with these packages.
roots_unpack() {
    local suite=$1 root=$2 name=${3:-clean} kept
    shift 2
    kept=$roots_cache/$suite-$name.tar
    if [ ! -s "$kept" ]; then
        mkdir -p "$roots_cache"
        if [ "$name" = clean ]; then
            unshare --mount --pid --fork --kill-child debootstrap --variant=minbase "$suite" "$root" "$roots_mirror" &&
                roots_run "$root" apt-get -qq update || return 1
        else
            roots_unpack "$suite" "$root" &&
                roots_run "$root" apt-get -qq install -y --no-install-recommends "${@:2}" || return 1
        fi
        roots_run "$root" apt-get -qq clean
        tar -C "$root" --one-file-system --numeric-owner -cf "$kept.$$" . && mv "$kept.$$" "$kept" || return 1
        return 0
    fi
    tar -C "$root" --numeric-owner -xf "$kept"
}
