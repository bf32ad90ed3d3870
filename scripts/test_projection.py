#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/gpu_projection.py on made-up counts and GPUs, what it prints, and that docs/performance.md says the same.

usage: test_projection.py
"""
import importlib.util
import os
import re
import subprocess
import sys
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PROGRAM = os.path.join(ROOT, "bench", "gpu_projection.py")
spec = importlib.util.spec_from_file_location("gpu_projection", PROGRAM)
projection = importlib.util.module_from_spec(spec)
spec.loader.exec_module(projection)

WEIGHTS = sum(count * k * m for count, k, m, _ in projection.MATRICES)
# bytes/ns, multiprocessors, GHz, multiply-adds a cycle, cycles of halves
SLOW_MEMORY = (1, 1000, 2.0, 1024, 1)
SLOW_WORK = (1e9, 10, 2.0, 1024, 1)


def counted(total, alu, fma, matrix):
    """The same counts for all forms and kernels."""
    return {(form, kernel): (total, alu, fma, matrix)
            for form in projection.BYTES for kernel in projection.ROWS.values()}


def recorded():
    """The section of docs/performance.md."""
    with open(os.path.join(ROOT, "docs", "performance.md"), encoding="utf-8") as file:
        return file.read().split("### Projections for other GPUs")[1].split("\n### ")[0]


def run(*args):
    return subprocess.run([sys.executable, PROGRAM, *args], capture_output=True, text=True, check=False)


class Formula(unittest.TestCase):
    def test_the_largest_of_four_binds(self):
        for counts, gpu, seen in [
            ((400, 100, 100, 10), SLOW_WORK, (400, "issue")),
            ((400, 201, 100, 10), SLOW_WORK, (402, "logic")),
            ((400, 100, 300, 10), (1, 1, 1, 1024, 2), (600, "halves")),
            ((400, 100, 100, 100), SLOW_WORK, (800, "matrix")),  # 2048 multiply-adds, a quarter of 1024
            ((400, 100, 100, 100), (1, 1, 1, 512, 1), (1600, "matrix")),
        ]:
            self.assertEqual(projection.cycles(counts, gpu), seen)

    def test_memory_binds(self):
        want = sum(count * k * m * projection.BYTES[form] for count, k, m, form in projection.MATRICES)
        ms, spent = projection.products(SLOW_MEMORY, 1, counted(1, 0, 0, 0))
        self.assertAlmostEqual(ms, want / 0.88 / 1e6, delta=ms * 1e-9)
        self.assertEqual(list(spent), ["memory"])

    def test_instructions_bind(self):
        ms, spent = projection.products(SLOW_WORK, 16, counted(400, 0, 0, 0))
        self.assertAlmostEqual(ms, WEIGHTS / 4096 * 400 / (10 * 4 * 2.0 * 0.85) / 1e6, delta=ms * 1e-9)
        self.assertEqual(list(spent), ["issue"])

    def test_rest_goes_by_the_clock_and_the_rows(self):
        for rows in projection.ROWS:
            counts = counted(400, 0, 0, 0)
            ms, bound = projection.forward(SLOW_WORK, rows, counts)
            rest = (2.713 + 0.141 * rows) * 1.980 / 2.0
            self.assertAlmostEqual(ms, projection.products(SLOW_WORK, rows, counts)[0] + rest, delta=1e-9)
            self.assertEqual(bound, "issue")

    def test_each_row_has_its_kernel(self):
        counts = counted(1, 0, 0, 0)
        for form in projection.BYTES:
            counts[form, "warp_24_one"] = (999, 0, 0, 0)
        ms = {rows: projection.products(SLOW_WORK, rows, counts)[0] for rows in projection.ROWS}
        self.assertGreater(ms[23], 900 * ms[16])
        self.assertEqual({ms[rows] for rows in (1, 8, 16, 32)}, {ms[1]})


class Program(unittest.TestCase):
    def test_counts_of_all_it_needs_are_there(self):
        real = projection.instructions()
        for form in projection.BYTES:
            for kernel in projection.ROWS.values():
                self.assertTrue(all(v > 0 for v in real[form, kernel]), (form, kernel))

    def test_projection(self):
        out = run().stdout.splitlines()
        self.assertEqual(len(out), 1 + len(projection.GPUS))
        for line, name in zip(out[1:], projection.GPUS):
            self.assertTrue(line.startswith(name))
            cells = re.findall(r"(\d+\.\d) \((memory|issue|logic|halves|matrix)\)", line)
            self.assertEqual(len(cells), len(projection.SHOWN), line)
            ms = [float(v) for v, _ in cells]
            self.assertEqual(ms, sorted(ms))

    def test_check(self):
        done = run("--check")
        found = re.findall(r"^ ?(\d+) rows: products [\d.]+ ms \(.*\), forward ([\d.]+), seen ([\d.]+), ([+-]\d+) %$",
                           done.stdout, re.M)
        self.assertEqual([int(rows) for rows, *_ in found], list(projection.SEEN))
        for rows, ms, seen, off in found:
            self.assertEqual(float(seen), projection.SEEN[int(rows)])
            self.assertAlmostEqual(float(off), 100 * (float(ms) / float(seen) - 1), delta=0.6)

    def test_the_document_has_what_is_printed(self):
        lines = run().stdout.splitlines()
        head, *rows = [line.strip("| ").split(" | ") for line in recorded().splitlines()
                       if re.match(r"\| (\||RTX)", line)]
        self.assertEqual(head, re.findall(r"\d+ rows?", lines[0]))
        self.assertEqual(len(rows), len(projection.GPUS))
        for row, line in zip(rows, lines[1:]):
            self.assertEqual(row, [line[:24].strip(), *re.findall(r"[\d.]+ \(\w+\)", line[24:])])

    def test_the_document_has_what_the_check_gives(self):
        told = re.findall(r"([\d.]+)(?: ms)? at (\d+)(?: rows)? \((?:seen )?([\d.]+)(?:, ([+-]\d+) %)?\)", recorded())
        self.assertEqual([int(rows) for _, rows, *_ in told], [8, 16, 23])
        printed = {rows: (ms, seen, int(off)) for rows, ms, seen, off in
                   re.findall(r"^ *(\d+) rows: .* forward ([\d.]+), seen ([\d.]+), ([+-]\d+) %$",
                              run("--check").stdout, re.M)}
        for ms, rows, seen, off in told:
            self.assertEqual((ms, seen, int(off or 0)), printed[rows])
        for rows in 1, 32:  # what the rest was chosen for
            self.assertEqual(printed[str(rows)][2], 0)

    def test_what_is_unknown_is_refused(self):
        self.assertEqual(run("--chek").returncode, 2)


if __name__ == "__main__":
    unittest.main()
