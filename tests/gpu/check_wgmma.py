#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks in a program's sm_90a code for writes into registers that a wgmma is still reading.

Usage: check_wgmma.py PROGRAM (or a .cubin)

From an HGMMA to the wait after it its weight operand may not change. The assembler does not see to
that by itself (src/ops/gpu/matrix/wgmma.cuh). Needs cuobjdump of the CUDA toolkit; exit status 77 without.
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


class Reading:
    """Registers that products read: of those not yet closed by a commit, of each group since."""

    def __init__(self, opened=(), groups=()):
        self.opened, self.groups = set(opened), [set(g) for g in groups]

    def all(self):
        return self.opened.union(*self.groups)

    def step(self, code):
        """Registers that the instruction must not have written."""
        product = PRODUCT.match(code)
        if product:
            first = int(product.group(2))
            self.opened |= set(range(first, first + 4))
            if code.endswith("gsb0"):
                self.groups.append(self.opened)
                self.opened = set()
        elif code.startswith("WARPGROUP.DEPBAR"):
            left = int(code.split(",")[1], 0)
            self.opened, self.groups = set(), self.groups[len(self.groups) - left:] if left else []
        elif not code.startswith(NO_RESULT):
            write = WRITE.match(code)
            if write:
                first = int(write.group(2))
                return self.all() & set(range(first, first + width(write.group(1))))
        return set()


def scan_function(code):
    """Bad writes of one function, a list of (address, instruction)."""
    bad, reading, place = set(), Reading(), {address: i for i, (address, _) in enumerate(code)}
    for i, (address, one) in enumerate(code):
        if reading.step(one):
            bad.add((address, one))
        jump = re.match(r"BRA\S*\s+(?:\S+,\s+)?(?:0x([0-9a-f]+)|`)", one)
        target = int(jump.group(1), 16) if jump and jump.group(1) else address
        if target < address and target in place and reading.all():
            again = Reading(reading.opened, reading.groups)  # once more round the loop
            for at, other in code[place[target]:i]:
                if again.step(other):
                    bad.add((at, other))
    return sorted(bad)


def scan(text):
    """Products seen, and (function, address, instruction) of each bad write."""
    products, bad, function, code = 0, [], "", []
    for line in text.splitlines() + ["Function : end"]:
        start = re.search(r"Function : (\S+)", line)
        if start:
            bad += [(function, f"{at:x}", one) for at, one in scan_function(code)]
            function, code = start.group(1), []
            continue
        found = re.match(r"\s+/\*([0-9a-f]+)\*/\s+(.*?);", line)
        if found:
            one = re.sub(r"^@!?U?P\w+\s+", "", found.group(2).strip())
            products += bool(PRODUCT.match(one))
            code.append((int(found.group(1), 16), one))
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
