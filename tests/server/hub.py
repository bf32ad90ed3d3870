# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face Hub of a few repositories on this machine, for test_pull.py: the interface that lists files, files that
lie in LFS behind a redirect to another host, and whatever misbehaviour a test asks for. Standard library only.
"""
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

COMMIT = "c0ffee" + "0" * 34


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server.hub
        token = self.headers.get("Authorization")
        with hub.lock:
            hub.seen.append((self.server.name, self.command, self.path, self.headers.get("Range"), token))
        try:
            if not (hub.rule and hub.rule(self, self.server.name)):
                self.usual()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def usual(self):
        hub = self.server.hub
        path = urllib.parse.unquote(self.path.partition("?")[0])
        if self.server.name == "cdn":
            return self.content(hub.blobs[path.rpartition("/")[2]])
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
            if found[1] not in hub.repos:
                return self.answer(401, b"{}", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "not found"})
            if found[2] not in ("main", COMMIT):
                return self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            return self.answer(200, json.dumps(hub.listing(found[1])).encode())
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            data = hub.repos.get(found[1], {}).get(found[3])
            if data is None:
                return self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
            return self.resolve(found[3], data)
        return self.answer(404, b"")

    def resolve(self, name, data):
        head = {"X-Repo-Commit": COMMIT}
        if not name.endswith((".gguf", ".safetensors")):
            return self.content(data, {**head, "ETag": f'"{git_hash(data)}"'})
        etag = sha256(data)
        return self.answer(302, b"", {**head, "X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(data)),
                                      "Location": f"{self.server.hub.cdn_url}/{etag}?signed=yes"})

    def range_of(self, data):
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        return (int(found[1]), min(int(found[2] or len(data)), len(data) - 1)) if found else None

    def content(self, data, more=None):
        part = self.range_of(data)
        if not part:
            return self.answer(200, data, more)
        first, last = part
        return self.answer(206, data[first:last + 1],
                           {**(more or {}), "Content-Range": f"bytes {first}-{last}/{len(data)}"})

    def answer(self, status, data, more=None, send=None):
        """send: only so many bytes of data, then the connection is cut."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[:send])
            self.wfile.flush()
            with self.server.hub.lock:
                self.server.hub.sent += len(data[:send]) if self.server.name == "cdn" else 0
        if send is not None:
            self.close_connection = True
            self.connection.shutdown(2)
        return True


class Hub:
    """repos: {repository: {file: bytes}}; wrong: {file: hash} of what is listed with another one."""

    def __init__(self, repos):
        self.repos = repos
        self.blobs = {sha256(data): data for files in repos.values() for data in files.values()}
        self.wrong, self.sizes = {}, {}
        self.lock = threading.Lock()
        self.rule, self.seen, self.sent = None, [], 0
        self.servers = [self.start("hub"), self.start("cdn")]
        self.url = f"http://127.0.0.1:{self.servers[0].server_port}"
        self.cdn_url = f"http://localhost:{self.servers[1].server_port}/cdn"

    def start(self, name):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # clients that are cut or end
        server.hub, server.name = self, name
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def listing(self, repo):
        siblings = []
        for name, data in self.repos[repo].items():
            one = {"rfilename": name, "size": self.sizes.get(name, len(data)), "blobId": git_hash(data)}
            if name.endswith((".gguf", ".safetensors")):
                one["lfs"] = {"sha256": self.wrong.get(name, sha256(data)), "size": one["size"], "pointerSize": 134}
            siblings.append(one)
        return {"id": repo, "sha": COMMIT, "siblings": siblings}

    def calm(self, rule=None):
        """Forgets what was seen, and sets the misbehaviour: rule(handler, "hub" or "cdn") is true where it answered."""
        with self.lock:
            self.rule, self.seen, self.sent = rule, [], 0

    def requests(self, server):
        with self.lock:
            return [request for request in self.seen if request[0] == server]
