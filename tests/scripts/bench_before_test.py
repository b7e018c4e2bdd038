# SPDX-License-Identifier: MIT
"""scripts/bench-before with stand-ins: who runs when, and the table."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))

# Says that everything takes SECONDS; serves a page that answers at once.
PROGRAM = """#!/usr/bin/env python3
import http.server, json, pathlib, sys
name, seconds = pathlib.Path(__file__).name, SECONDS
with (pathlib.Path(__file__).parent / "log").open("a") as file:
    file.write(name + " " + sys.argv[1] + "\\n")
if sys.argv[1] == "bench":
    runs = int(sys.argv[sys.argv.index("--runs") + 1])
    print(json.dumps({"seconds": [seconds] * runs}))
elif sys.argv[1] == "circuit":
    print(json.dumps([{"patching_seconds": seconds}]))
else:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200 if self.path == "/api/run" and "prompt" in question else 404)
            self.end_headers()
        def log_message(self, *words):
            pass
    server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    print(f"Open http://127.0.0.1:{server.server_port}/ in a browser", flush=True)
    server.serve_forever()
"""


class BenchBefore(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        for name, seconds in (("old", "3.0"), ("new", "2.0"), ("broken", "print(1 / 0)")):
            (self.folder / name).write_text(PROGRAM.replace("SECONDS", seconds))
            (self.folder / name).chmod(0o755)

    def run_script(self, *words):
        return subprocess.run([sys.executable, "-B", ROOT / "scripts/bench-before", *words], text=True,
                              capture_output=True)

    def programs(self, *names):
        return [str(self.folder / name) for name in names]

    def test_turns_and_table(self):
        run = self.run_script(*self.programs("old", "new"), "--work", "dense-step,patching")
        self.assertEqual(run.returncode, 0, run.stderr)
        turns = (self.folder / "log").read_text().split()
        self.assertEqual(turns[0::2], ["old", "new", "new", "old", "old", "new"] * 2)
        self.assertEqual(turns[1::2], ["bench"] * 6 + ["circuit"] * 6)
        lines = run.stdout.splitlines()
        self.assertEqual(lines[2], "| training step, 124M, 4 x 256 | 3000 (3000-3000) | 2000 (2000-2000) | 1.50 (1.50-1.50) |")
        self.assertTrue(lines[3].endswith("| 1.50 (1.50-1.50) |"), lines[3])

    def test_page(self):
        run = self.run_script(*self.programs("old", "new"), "--work", "page", "--rounds", "1")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout.splitlines()[2], r"^\| page answer .* \| [0-9.]+ \([0-9.]+-[0-9.]+\) \|")

    def test_what_cannot_be(self):
        self.assertIn("'sleep' is no work", self.run_script(*self.programs("old", "new"), "--work", "sleep").stderr)
        run = self.run_script(*self.programs("broken", "new"), "--work", "patching")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("broken failed (see above)", run.stderr)


unittest.main()
