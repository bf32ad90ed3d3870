#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""schemathesis against the OpenAPI document that the server itself gives: requests made from the
schema, good and bad, whose answers must be what the document says. The examples are bounded and the
same every time; a small context bounds what each generates.
"""
import json
import os
import subprocess
import sys

from suite import ROOT, Server, check, equal, finish, part, request

EXAMPLES = 15
# A schema cannot say that a template requires a user's message or that the context is small; and
# OPTIONS is answered for the whole server, not path by path.
EXCLUDED = "positive_data_acceptance,allow_header_conformance"
server = None


def document():
    status, headers, body = request(server.port, "GET", "/openapi.json")
    equal("the document: status", status, 200)
    value = json.loads(body)
    check("the document: version", value["openapi"].startswith("3.1"), value["openapi"])
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/models", "/health", "/props", "/slots", "/metrics",
                 "/apply-template", "/api/v0/models"):
        check(f"the document: {path}", path in value["paths"], sorted(value["paths"]))


def schemathesis():
    program = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    done = subprocess.run(
        [program, "run", f"http://127.0.0.1:{server.port}/openapi.json", "--no-color", "--phases",
         "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES), "--seed", "1", "--generation-deterministic",
         "--request-timeout", "60", "--continue-on-failure", "--warnings", "off", "--exclude-checks", EXCLUDED],
        capture_output=True, text=True, timeout=600, check=False,
        cwd=os.path.join(ROOT, "build"))  # it leaves a cache where it runs
    print(done.stdout[-20000:], done.stderr[-2000:], sep="\n")
    check("schemathesis finds nothing", done.returncode == 0, f"status {done.returncode}; see above")


if __name__ == "__main__":
    server = Server("--max-ctx", "128")
    for function in [document, schemathesis]:
        part(function)
    equal("the server is well", server.health(), 200)
    equal("and ends in order", server.end(), 0)
    finish()
