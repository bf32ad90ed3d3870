#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks in a program's sm_90a code for writes into registers that a wgmma is still reading.

Usage: check_wgmma.py PROGRAM (or a .cubin)

From an HGMMA to the wait behind it its weight operand may not change. The assembler does not see to
that by itself (src/ops/cuda/wgmma.cuh). Needs cuobjdump of the CUDA toolkit; exit status 77 without.
"""

import re
import shutil
import subprocess
import sys

PRODUCT = re.compile(r"HGMMA\.\S+ R(\d+), R(\d+),")
WRITE = re.compile(r"(\S+)\s+R(\d+)\b")
NO_RESULT = ("ST", "RED", "BAR", "SYNCS", "UBLKCP", "LDGSTS", "WARPSYNC", "BRX", "RET", "JMX")


def width(operation):
    """Registers that an instruction writes."""
    if ".128" in operation:
        return 4
    return 2 if ".64" in operation or ".WIDE" in operation else 1


def scan(text):
    """Products seen, and (function, address, instruction) of each bad write."""
    function, reading, products, bad = "", set(), 0, []
    for line in text.splitlines():
        start = re.search(r"Function : (\S+)", line)
        if start:
            function, reading = start.group(1), set()
            continue
        found = re.match(r"\s+/\*([0-9a-f]+)\*/\s+(.*?);", line)
        if not found:
            continue
        code = re.sub(r"^@!?U?P\w+\s+", "", found.group(2).strip())
        product = PRODUCT.match(code)
        if product:
            products += 1
            first = int(product.group(2))
            reading |= set(range(first, first + 4))
        elif code.startswith("WARPGROUP.DEPBAR"):
            reading = set()
        elif reading and not code.startswith(NO_RESULT):
            write = WRITE.match(code)
            if write:
                first = int(write.group(2))
                if reading & set(range(first, first + width(write.group(1)))):
                    bad.append((function, found.group(1), code))
    return products, bad


def main():
    if len(sys.argv) != 2:
        print("usage: check_wgmma.py PROGRAM", file=sys.stderr)
        return 2
    tool = shutil.which("cuobjdump") or shutil.which("cuobjdump", path="/usr/local/cuda/bin")
    if not tool:
        print("skip   cuobjdump of the CUDA toolkit is not installed")
        return 77
    dump = subprocess.run([tool, "-sass", sys.argv[1]], capture_output=True, text=True, check=True)
    products, bad = scan(dump.stdout)
    for function, address, code in bad:
        print(f"FAIL   {function} {address}: {code} writes what a product still reads")
    if not products:
        print("skip   no sm_90a code in it")
        return 77
    print(f"{products} products, {len(bad)} writes into what they read")
    print(f"{0 if bad else 1} passed, {1 if bad else 0} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
