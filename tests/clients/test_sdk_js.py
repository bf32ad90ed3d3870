#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The JavaScript SDKs, by test_sdk.mjs, which is copied next to the packages in FOLDER."""
import os
import re
import shutil
import subprocess

from harness import FOLDER, NOTE, Trial, check, part
from suite import counts

trial = Trial()
HERE = os.path.dirname(os.path.abspath(__file__))


def scripts():
    for path in ("../server/suite.mjs", "test_sdk.mjs"):
        shutil.copy(os.path.join(HERE, path), FOLDER)
    done = subprocess.run(["node", os.path.join(FOLDER, "test_sdk.mjs"), trial.url, os.path.join(trial.work, "notes.txt"), NOTE],
                          env=trial.env, capture_output=True, text=True, timeout=300, check=False)
    print(done.stdout, done.stderr, sep="")
    found = re.search(r"^(\d+) passed, (\d+) failed$", done.stdout, re.M)
    if check("test_sdk.mjs ran to its end", found is not None):
        counts["passed"] += int(found[1])
        counts["failed"] += int(found[2])


part(scripts)
trial.finish()
