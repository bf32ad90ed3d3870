#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers for test_openai.mjs and the other scripts, which count their own checks. Usage: test_js.py PROGRAM
NODE-FOLDER, the folder with node_modules and copies of the scripts.
"""
import os
import re
import subprocess
import sys

from suite import Server, check, counts, equal, finish

if __name__ == "__main__":
    open_server, keyed = Server(), Server("--api-key", "k1")
    urls = [f"http://127.0.0.1:{s.port}" for s in (open_server, keyed)]
    for script in ("test_openai.mjs", "test_responses.mjs", "test_anthropic.mjs"):
        done = subprocess.run(["node", os.path.join(sys.argv[2], script), *urls], capture_output=True, text=True,
                              timeout=300, check=False)
        print(done.stdout, done.stderr, sep="")
        found = re.search(r"^(\d+) passed, (\d+) failed$", done.stdout, re.M)
        if check(f"{script} ran to its end", found is not None, done.stderr):
            counts["passed"] += int(found[1])
            counts["failed"] += int(found[2])
    equal("the servers end in order", [open_server.end(), keyed.end()], [0, 0])
    finish()
