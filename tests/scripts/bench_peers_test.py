# SPDX-License-Identifier: MIT
"""scripts/bench-peers with stand-ins that answer at once: who is asked when, and the table."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))

# Takes 3, 4, 5, ... seconds for each run, as it says.
PEER = """#!/usr/bin/env python3
import json, pathlib, sys
log = pathlib.Path(__file__).parent / "log"
seconds = 3
for line in sys.stdin:
    words = line.split()
    if words[0] == "about":
        print(json.dumps({"program": "Stand-in 1.0", "threads": 1}), flush=True)
        continue
    with log.open("a") as file:
        file.write("peer " + words[1] + "\\n")
    print(json.dumps({"seconds": [seconds] * int(words[2])}), flush=True)
    seconds += 1
"""
# Takes 2 seconds.
OURS = """#!/usr/bin/env python3
import json, pathlib, sys
if "--version" in sys.argv:
    sys.exit(print("clearhead 9"))
task = sys.argv[sys.argv.index("--task") + 1]
runs = int(sys.argv[sys.argv.index("--runs") + 1])
with (pathlib.Path(__file__).parent / "log").open("a") as file:
    file.write("ours " + task + "\\n")
print(json.dumps({"what": "work", "tokens": 1024 if "step" in task else 0, "seconds": [2.0] * runs}))
"""


class BenchPeers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (("peer", PEER), ("ours", OURS)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def run_script(self, *words, python=None):
        return subprocess.run(
            [sys.executable, "-B", str(ROOT / "scripts/bench-peers"), python or str(self.folder / "peer"),
             "--clearhead", str(self.folder / "ours"), *words],
            capture_output=True, text=True, check=False)

    def test_turns_and_table(self):
        page = self.folder / "page.md"
        page.write_text("Before\n<!-- bench-peers -->\nold\n<!-- /bench-peers -->\nAfter\n")
        run = self.run_script("--rounds", "3", "--tasks", "dense-step-256,gated-attention", "--out", str(page))
        self.assertEqual(run.returncode, 0, run.stderr)
        turns = [line.split() for line in (self.folder / "log").read_text().splitlines()]
        self.assertEqual([who for who, _ in turns], ["peer", "ours", "ours", "peer", "peer", "ours"] * 2)
        self.assertIn("Stand-in 1.0; clearhead 9.", run.stdout)
        # The peer took 3, 4 and 5 s for 1024 tokens, then 6, 7 and 8 s; clearhead always 2.
        self.assertIn("| work | tokens/s | 256 (205-341) | 512 (512-512) | 2.00 (1.50-2.50) |", run.stdout)
        self.assertIn("| work | ms | 7000 (6000-8000) | 2000 (2000-2000) | 3.50 (3.00-4.00) |", run.stdout)
        text = page.read_text()
        self.assertTrue(text.startswith("Before\n<!-- bench-peers -->\n20"), text)
        self.assertTrue(text.endswith("|\n<!-- /bench-peers -->\nAfter\n"), text)
        self.assertNotIn("old", text)
        self.assertIn(run.stdout, text)

    def test_refusals(self):
        run = self.run_script("--tasks", "sleep")
        self.assertEqual(run.returncode, 2)
        self.assertIn("'sleep' is no task", run.stderr)
        run = self.run_script(python="false")
        self.assertEqual(run.returncode, 1)
        self.assertIn("torch and transformers", run.stderr)
        self.assertEqual(run.stdout, "")

    def test_both_sides_know_the_same_tasks(self):
        script = (ROOT / "scripts/bench-peers").read_text()
        peer = (ROOT / "bench/peers/torch_peer.py").read_text()
        program = (ROOT / "src/measure/single_task.cc").read_text()
        names = [line.split('"')[1] for line in program.splitlines() if line.startswith('    {"')]
        compared = [name for name in names if name != "features-step"]  # PyTorch has no such step
        self.assertEqual(len(compared), 8)
        for name in compared:
            self.assertIn(f'"{name}": ', script)
            self.assertIn(f'"{name}": ', peer)


unittest.main()
