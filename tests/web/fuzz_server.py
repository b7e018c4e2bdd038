# SPDX-License-Identifier: MIT
"""Random requests to `clearhead serve`: memory must stay flat and the server must go on answering.

    fuzz_server.py PROGRAM MAKE_SMALL_MODELS [--seconds 600] [--seed 0]
"""

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

WORDS = ["The", " cat", " sat", " on", " the", " mat", ".", "\n", "naïve", "\u0000", "😀", "<script>", "L0H1", "<|endoftext|>"]
PATHS = ["/", "/page.js", "/page.css", "/api/overview", "/api/results/0", "/api/results/999", "/api/run", "/api/head", "/api/token",
         "/../etc/passwd", "/%2e%2e/%2e%2e", "/api/", "/" + "a" * 5000, "*", "", "/api/run?x=%00"]


def random_value(rng, depth=0):
    kind = rng.randrange(8 if depth < 4 else 6)
    if kind == 0:
        return rng.choice([0, 1, -1, 7, 64, 1 << 31, 1 << 63, 1e308, -0.5])
    if kind == 1:
        return "".join(rng.choice(WORDS) for _ in range(rng.randrange(30)))
    if kind == 2:
        return rng.choice([True, False, None])
    if kind == 3:
        return f"L{rng.randrange(4)}H{rng.randrange(5)}"
    if kind in (4, 5):
        return [["L0H1"], ["L1H0", "L0H0"]]
    if kind == 6:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["prompt", "x", "head"]): random_value(rng, depth + 1) for _ in range(rng.randrange(3))}


def random_question(rng):
    question = {"prompt": "".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 25)))}
    for name in ("ablate", "cells", "likeliest", "head", "position", "open_gates", "client", "number", "zzz"):
        if rng.random() < 0.25:
            question[name] = random_value(rng)
    if rng.random() < 0.1:
        question["prompt"] = random_value(rng)
    return json.dumps(question, ensure_ascii=rng.random() < 0.5).encode("utf-8", "replace")


def random_request(rng, host):
    body = random_question(rng)
    method = rng.choice(["POST"] * 6 + ["GET"] * 4 + ["HEAD", "PUT", "OPTIONS", "DELETE", "BREW", ""])
    path = rng.choice(["/api/run", "/api/head", "/api/token"]) if method == "POST" and rng.random() < 0.7 else rng.choice(PATHS)
    headers = [f"Host: {host if rng.random() < 0.9 else 'evil.example'}"]
    if method in ("POST", "PUT"):
        headers += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    else:
        body = b""
    for _ in range(rng.randrange(3)):
        headers.append(rng.choice(["Origin: http://evil.example", "Range: bytes=0-5,7-9", "Connection: close", "Connection: keep-alive",
                                   "Transfer-Encoding: chunked", "Content-Encoding: gzip", "Expect: 100-continue", "Accept-Encoding: gzip, br",
                                   "X: " + "y" * rng.randrange(9000), "Content-Length: 99999999", "Upgrade: h2c", "Clearhead-Socket: 1"]))
    request = f"{method} {path} HTTP/1.{rng.choice('0111119')}\r\n".encode() + "\r\n".join(headers).encode() + b"\r\n\r\n" + body
    if rng.random() < 0.15:  # damage
        data = bytearray(request)
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        request = bytes(data[:rng.randrange(1, len(data) + 1)])
    return request


def exchange(port, request, rng):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        try:
            if rng.random() < 0.1:  # slowly, and away
                client.sendall(request[:len(request) // 2])
                time.sleep(0.02)
                return b""
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            answer = b""
            while len(answer) < 1 << 24:
                piece = client.recv(1 << 16)
                if not piece:
                    break
                answer += piece
            return answer
        except (ConnectionError, TimeoutError):
            return b""


def resident_kilobytes(process):
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise SystemExit("the server is gone")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("make_models")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.make_models, folder], check=True)
        # The address sanitizer keeps freed memory for a while, which would look like growth.
        environment = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"}
        process = subprocess.Popen([options.program, "serve", f"{folder}/dense", f"{folder}/gated", "--port", "0", "--json"],
                                   stdout=subprocess.PIPE, text=True, env=environment)
        try:
            text = ""
            while not text.rstrip().endswith("}"):
                text += process.stdout.readline()
            port = json.loads(text)["port"]
            fuzz(process, port, folder, options)
        finally:
            process.kill()
            process.wait()


def fuzz(process, port, folder, options):
    host = f"127.0.0.1:{port}"
    end = time.monotonic() + options.seconds
    counts, trouble = {}, []

    def work(seed):
        rng = random.Random(seed)
        while time.monotonic() < end and not trouble:
            answer = exchange(port, random_request(rng, host), rng)
            status = answer[9:12].decode("latin1") if answer.startswith(b"HTTP/1.") else "none"
            counts[status] = counts.get(status, 0) + 1
            if status == "500":
                trouble.append(f"status 500: {answer[-200:]!r}")
            if folder.encode() in answer:
                trouble.append(f"a path of the machine: {answer[:300]!r}")

    threads = [threading.Thread(target=work, args=(options.seed * 100 + i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    # Memory settles within the first fifth (buffers, threads); from then on it may not grow.
    time.sleep(options.seconds / 5)
    settled = resident_kilobytes(process)
    for thread in threads:
        thread.join()
    final = resident_kilobytes(process)
    answer = exchange(port, f"GET /api/overview HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode(), random.Random(2))
    print(f"{sum(counts.values())} requests {dict(sorted(counts.items()))}; memory {settled} kB after a fifth of the time, {final} kB at the end")
    assert not trouble, trouble[0]
    assert process.poll() is None, "the server ended"
    assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    assert final < settled * 1.1 + 8192, "memory grew"
    assert counts.get("200", 0) > 0 and counts.get("400", 0) > 0, "the requests do not reach what they should"


if __name__ == "__main__":
    sys.exit(main())
