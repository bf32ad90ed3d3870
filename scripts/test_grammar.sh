#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Schemas as grammars against others who read JSON Schema: the JSON-Schema-Test-Suite, which the source
# package of jsonschema on PyPI carries, jsonschema itself on what grammars give for random schemas, and
# random regular expressions against Python's re. The former are fetched into build/. Usage:
# scripts/test_grammar.sh [SCHEMAS [SEED]], 1,000 schemas and expressions without an argument. The exit
# status is 77 when the packages cannot be had. The last line is "N passed, N failed".
set -u
cd "$(dirname "$0")/.." || exit 2
tool=build/release/tests/grammar/grammar_tool
schemas=${1:-1000}
seed=${2:-1}
version=4.26.0
venv=build/grammar-venv
source=build/grammar-suite/jsonschema-$version
tests=$source/json/tests/draft2020-12

fetch() {
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv" || return
    "$venv/bin/python" -c 'import jsonschema' 2>/dev/null ||
        timeout 900 "$venv/bin/pip" install -q --disable-pip-version-check "jsonschema==$version" || return
    [ -d "$tests" ] && return
    timeout 900 "$venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary jsonschema \
        -d "$(dirname "$source")" "jsonschema==$version" &&
        tar -xzf "$source.tar.gz" -C "$(dirname "$source")"
}
[ -x "$tool" ] || {
    echo "test_grammar.sh: $tool is missing; build the preset release first" >&2
    exit 2
}
mkdir -p build/logs "$(dirname "$source")"
if ! fetch >build/logs/grammar-fetch.log 2>&1 || ! [ -d "$tests" ]; then
    echo "skipped  grammar: jsonschema $version cannot be had from PyPI (build/logs/grammar-fetch.log)"
    exit 77
fi

passed=0
failed=0
compare() {
    if timeout 3600 "$venv/bin/python" tests/grammar/"$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}
compare compare.py suite "$tool" "$tests"
compare compare.py suite "$tool" "$tests/optional"
compare compare.py formats "$tool" "$tests/optional/format"
compare compare.py random "$tool" "$schemas" "$seed"
compare compare_regex.py "$tool" "$schemas" "$seed"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
