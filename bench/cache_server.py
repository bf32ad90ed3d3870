# SPDX-License-Identifier: Apache-2.0
"""What measurements of the prefix cache share: a server on a free port, and rows of a table with bounds."""
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

missed = []  # rows whose bound was missed


def head():
    print("| | measured | bound | reached |\n|---|---|---|---|", flush=True)


def row(name, value, bound="", reached=None):
    if reached is False:
        missed.append(name)
    print(f"| {name} | {value} | {bound} | {'' if reached is None else 'yes' if reached else 'no'} |", flush=True)


class Server:
    def __init__(self, program, *options):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = tempfile.TemporaryFile()
        self.child = subprocess.Popen([program, "serve", "--port", str(self.port), *options],
                                      stdout=self.log, stderr=self.log)
        end = time.monotonic() + 120
        while not self.ready():
            if self.child.poll() is not None or time.monotonic() > end:
                self.child.kill()
                self.log.seek(0)
                sys.exit(self.log.read().decode())
            time.sleep(0.05)

    def ready(self):
        try:
            urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
            return True
        except OSError:
            return False

    def post(self, path, body):
        q = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(q, timeout=600) as answer:
            return json.load(answer)

    def metric(self, name):
        with urllib.request.urlopen(f"{self.url}/metrics") as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(name + " "):
                    return float(line.split()[1])
        return 0

    def written(self, seconds=1):
        """Waits until no file has been written for so long."""
        before = -1
        while before != (before := self.metric("coppice_cache_files_written_total")):
            time.sleep(seconds)

    def end(self):
        self.child.terminate()
        self.child.wait()
