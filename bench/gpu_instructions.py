#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions that the kernels of linear layers issue for 256 x 16 weights, by pipe.

Usage: bench/gpu_instructions.py [--arch sm_90a] [--build build/cuda-engine] [--kernel WORD]
                                 [--forms] [--check FILE | --write FILE]

Disassembles the objects of src/ops/gpu/linear with cuobjdump (of the CUDA toolkit, or PyPI's
nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm) and looks in each kernel for its loops: the innermost
intervals that a branch backwards closes and that hold matrix instructions. What a loop does in one
turn is determined by those: HMMA.16816 takes 16 x 16 weights for 8 rows, HGMMA.64xNx16 64 x 16 weights
for N rows, of which each of four warps has a quarter. Code outside of such loops (fills of the
rings, epilogues) is not counted, and both sides of a branch inside one are. It runs nothing and
needs no GPU.

--forms prints one line for each form of weights and kernel of few/few.cuh (one row takes that of
eight; warp_16 and the like are those of few/warp.cuh for two tiles of weights a warp, warp_16_one
for one), --check compares their sums with those in FILE, made by --write: more than 3 % above them
fails. Another compiler gives other code, so then nothing is compared.
"""

import argparse
import collections
import glob
import os
import re
import shutil
import subprocess
import sys

TILE = 256 * 16  # weights that the counts are for

# Which pipe of a multiprocessor's quarter takes an opcode (its part before the first dot); what is
# not named here is counted as "other".
PIPES = {
    "matrix": ["HMMA", "IMMA", "HGMMA", "IGMMA", "QGMMA"],
    "alu": ["LOP3", "SHF", "PRMT", "ISETP", "IADD3", "VIADD", "LEA", "SEL", "FSEL", "IMNMX", "VIMNMX",
            "FMNMX", "FSETP", "PLOP3", "SGXT", "BMSK", "ICMP", "HSETP2", "HMNMX2", "MOV", "P2R", "R2P"],
    "fma": ["FFMA", "FMUL", "FADD", "IMAD", "HFMA2", "HADD2", "HMUL2", "IDP"],
    "load": ["LDS", "LDSM", "STS", "LD", "LDG", "ST", "STG", "LDGSTS", "LDC", "ATOMS", "RED", "ATOM", "SYNCS",
             "UBLKCP", "SHFL", "S2R", "CS2R", "MUFU", "I2F", "F2I", "F2F", "POPC", "FLO", "I2FP", "F2FP"],
    "control": ["BRA", "BSSY", "BSYNC", "BAR", "EXIT", "WARPSYNC", "NOP", "DEPBAR", "WARPGROUP", "YIELD",
                "ERRBAR", "MEMBAR", "FENCE", "CALL", "RET", "BREAK", "ELECT", "VOTE", "VOTEU", "NANOSLEEP"],
}
PIPE_OF = {name: pipe for pipe, names in PIPES.items() for name in names}
COLUMNS = [*PIPES, "uniform", "other"]

FUNCTION = re.compile(r"^\s*Function : (\S+)")
LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.x]*)([^;]*);")
WIDE = re.compile(r"HGMMA\.64x(\d+)x16")


def disassemble(path, arch):
    done = subprocess.run(["cuobjdump", "-sass", "-arch", arch, path], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"gpu_instructions.py: cuobjdump {path}: {done.stderr.strip()[:300]}")
    return done.stdout.splitlines()


def functions(lines):
    """Yields (name, [(address, opcode, operands)])."""
    name, body = None, []
    for line in lines:
        start = FUNCTION.match(line)
        if start:
            if name:
                yield name, body
            name, body = start[1], []
            continue
        found = LINE.match(line)
        if name and found:
            body.append((int(found[1], 16), found[2], found[3]))
    if name:
        yield name, body


def loops(body):
    """The innermost loops with matrix instructions, each as its list of opcodes."""
    spans = []
    for address, opcode, operands in body:
        target = re.search(r"0x([0-9a-f]+)\s*$", operands) if opcode.startswith("BRA") else None
        if target and int(target[1], 16) < address:
            spans.append((int(target[1], 16), address))
    matrix = [a for a, opcode, _ in body if PIPE_OF.get(opcode.split(".")[0]) == "matrix"]
    spans = sorted({s for s in spans if any(s[0] <= a <= s[1] for a in matrix)}, key=lambda s: s[1] - s[0])
    inner = []
    for span in spans:
        if not any(span[0] <= other[1] and other[0] <= span[1] for other in inner):
            inner.append(span)
    for begin, end in sorted(inner):
        yield [(opcode, operands) for address, opcode, operands in body if begin <= address <= end]


def pipe(opcode):
    name = opcode.split(".")[0]
    if name in PIPE_OF:
        return PIPE_OF[name]
    return "uniform" if name[0] == "U" or name == "R2UR" else "other"


def count(opcodes, tiles):
    """Weights of one turn, and instructions by pipe; tiles: of 8 rows that HMMA takes in turn."""
    wide = [int(w[1]) for o in opcodes if (w := WIDE.match(o))]
    narrow = sum(o.startswith("HMMA.16816") for o in opcodes)
    weights = len(wide) * 64 * 16 / 4 if wide else narrow * 256 / tiles
    return weights, max(wide, default=8 * tiles), collections.Counter(pipe(o) for o in opcodes)


def readable(names):
    if not shutil.which("c++filt"):
        return names
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True)
    return [n.replace("void ", "").split("(")[0] for n in done.stdout.splitlines()]


def tiles_of(name):
    """How many tiles of 8 rows a kernel multiplies each weight with: its second template argument."""
    found = re.search(r"<\d+, (\d+)", name)
    return int(found[1]) if found else 1


# Whose loop it is, by constants that only this form's decoder has; the first that fits.
SIGNS = [
    ("Q4_K", ["0x3c003c", "0x3f003f0"]), ("Q5_K", ["0x1f001f", "0x3f003f0"]), ("Q5_1", ["0x1f001f"]),
    ("Q6_K", ["0x3f003f", "0x64646464"]), ("Q2_K", ["0xc000c0"]), ("LEVELS8", ["0x77777777", "0x11111111"]),
    ("LEVELS16", ["0x88888888", "0xff00ff00"]), ("NVFP4", ["0x8e008e00", "32768, 32768"]),
    ("MXFP4", ["0x8e008e00"]), ("Q4_0", ["0x3c003c"]), ("Q8_0", ["0x4140"]), ("FLOAT", ["F2FP"]), ("HALF", []),
]
# Kernels for few rows: what their file is called by, tiles of 8 rows that HMMA takes in turn, loops of
# a form. Those of warps have one for two tiles of weights and one for a single tile.
FEW = {"8": (1, 1), "16": (2, 1), "24": (3, 1), "64": (8, 1), "warp_16": (2, 2), "warp_24": (3, 2), "warp_32": (4, 2)}
KERNELS = [*FEW, *(f"{kernel}_one" for kernel, (_, loops_each) in FEW.items() if loops_each > 1)]
MORE = 1.03  # of what is expected


def form_of(loop):
    text = "\n".join(f"{opcode} {operands}" for opcode, operands in loop)
    return next(form for form, signs in SIGNS if all(re.search(s + r"(?![0-9a-f])", text) for s in signs))


def few_forms(build, arch):
    """{(form, kernel): instructions by pipe} of the kernels for few rows."""
    found, most = {}, {}
    for kernel, (tiles, loops_each) in FEW.items():
        path = f"{build}/src/CMakeFiles/coppice.dir/kernels/linear_few_{kernel}.cu.o"
        for _, body in functions(disassemble(path, arch)):
            for loop in loops(body):
                weights, _, pipes = count([o for o, _ in loop], tiles)
                each = {p: n * TILE / weights for p, n in pipes.items()}
                key = form_of(loop), kernel
                if loops_each > 1 and key in found: # the loop of two tiles has more weights a turn
                    one = (key[0], f"{kernel}_one")
                    found[one] = found[key] if weights > most[key] else each
                if weights >= most.get(key, 0):
                    found[key], most[key] = each, weights
    missing = [(form, kernel) for form, _ in SIGNS for kernel in KERNELS if (form, kernel) not in found]
    if missing:
        sys.exit("gpu_instructions.py: no loop looks like " +
                 ", ".join(f"{form} in linear_few_{kernel}" for form, kernel in missing) +
                 ": constants of its decoder have changed, see SIGNS")
    return found


def compiler(build):
    for path in glob.glob(f"{build}/CMakeFiles/*/CMakeCUDACompiler.cmake"):
        with open(path, encoding="utf-8") as file:
            if found := re.search(r'CUDA_COMPILER_VERSION "([\d.]+)"', file.read()):
                return found[1]
    return "unknown"


WRITTEN = ["alu", "fma", "matrix"]  # pipes besides the sum


def print_forms(found):
    print(f"{'form':<10} {'kernel':>11} {'all':>6} " + " ".join(f"{c:>7}" for c in COLUMNS))
    for form, _ in SIGNS:
        for kernel in KERNELS:
            pipes = found[form, kernel]
            print(f"{form:<10} {kernel:>11} {sum(pipes.values()):>6.0f} " +
                  " ".join(f"{pipes.get(c, 0):>7.1f}" for c in COLUMNS))


def write_forms(found, path, version):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"# form, kernel, instructions for 256 x 16 weights, of them {', '.join(WRITTEN)}: "
                   f"bench/gpu_instructions.py --write, nvcc {version}\n")
        for form, _ in SIGNS:
            for kernel in KERNELS:
                pipes = found[form, kernel]
                each = "".join(f",{pipes.get(p, 0):.0f}" for p in WRITTEN)
                file.write(f"{form},{kernel},{sum(pipes.values()):.0f}{each}\n")


def check_forms(found, path, version):
    with open(path, encoding="utf-8") as file:
        head, *lines = file.read().splitlines()
    if not head.endswith(f"nvcc {version}"):
        print(f"nothing compared: this is nvcc {version}, {path} is of {head.split()[-1]}")
        return
    wrong = []
    for line in lines:
        form, kernel, expected, *_ = line.split(",")
        now = sum(found[form, kernel].values())
        if now > float(expected) * MORE:
            wrong.append(f"{form} in linear_few_{kernel}: {now:.0f} instructions, {expected} expected")
    if wrong:
        sys.exit("\n".join(wrong) + f"\ngpu_instructions.py: more than {path} allows; where that is "
                 "meant, write it anew with --write")
    print(f"none takes more than {MORE} of {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--build", default="build/cuda-engine")
    parser.add_argument("--kernel", default="", help="only kernels whose name holds this")
    parser.add_argument("--forms", action="store_true", help="few rows by form")
    parser.add_argument("--check", metavar="FILE", help="compare with what is expected")
    parser.add_argument("--write", metavar="FILE", help="write what is expected from now on")
    args = parser.parse_args()
    if not shutil.which("cuobjdump"):
        sys.exit("gpu_instructions.py: cuobjdump is missing; it comes with the CUDA toolkit")
    built = os.path.join(args.build, "src/CMakeFiles/coppice.dir")
    objects = sorted(glob.glob(f"{built}/ops/gpu/linear/*/*.cu.o") + glob.glob(f"{built}/kernels/*.cu.o"))
    if not objects:
        sys.exit(f"gpu_instructions.py: {args.build} holds no objects: cmake --preset cuda-engine && "
                 "cmake --build --preset cuda-engine")
    if args.forms or args.check or args.write:
        found = few_forms(args.build, args.arch)
        print_forms(found)
        if args.write:
            write_forms(found, args.write, compiler(args.build))
        if args.check:
            check_forms(found, args.check, compiler(args.build))
        return
    print(f"{'kernel':<34} {'rows':>4} {'all':>6} " + " ".join(f"{c:>7}" for c in COLUMNS))
    for path in objects:
        found = list(functions(disassemble(path, args.arch)))
        for name, (_, body) in zip(readable([n for n, _ in found]), found):
            if args.kernel not in name:
                continue
            for loop in loops(body):
                weights, rows, pipes = count([o for o, _ in loop], tiles_of(name))
                if weights:
                    scale = TILE / weights
                    print(f"{name:<34} {rows:>4} {sum(pipes.values()) * scale:>6.0f} " +
                          " ".join(f"{pipes[c] * scale:>7.1f}" for c in COLUMNS))


if __name__ == "__main__":
    main()
