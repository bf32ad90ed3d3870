#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The page: the copy in the tree is what a fresh build gives, and does what it should in Chromium,
# against a stand-in server and against PROGRAM. Status 77 where Node, npm, the packages of web/ or
# Chromium cannot be had. Usage: scripts/test_browser.sh [PROGRAM]
set -u
cd "$(dirname "$0")/.."
program=${1:-build/release/coppice}

. scripts/node.sh
if ! node_from 20; then
    echo "skipped  browser: no Node 20 or later with npm, and none from the registry (build/logs/node.log)"
    exit 77
fi
if ! cmp -s web/package-lock.json build/web/package-lock.json || [ ! -d build/web/node_modules ]; then
    if ! npm run --silent --prefix web setup; then
        echo "skipped  browser: npm cannot install the packages of web/"
        exit 77
    fi
fi
npm run --silent --prefix web check || exit 1
if ! command -v chromium >/dev/null 2>&1 && ! command -v google-chrome >/dev/null 2>&1; then
    echo "skipped  browser: no chromium; the page was only built"
    exit 77
fi
COPPICE_PROGRAM=$program exec timeout 1200 node --test --test-concurrency=2 --test-reporter=spec \
    tests/browser/test_*.mjs
