# SPDX-License-Identifier: MIT
"""scripts/circuit-seeds on small circuits: ratios, intervals, and what is said of folders that do not fit."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))


class CircuitSeeds(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, model, task, heads, kept=1.0, edges=1):
        path = pathlib.Path(self.folder.name) / model / task / "circuit.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"at_90": heads, "attention_edges": {"kept": kept}, "edges": {"edges_at_90": [0] * edges}}))
        return path

    def run_script(self, *models):
        return subprocess.run([ROOT / "scripts" / "circuit-seeds", *models], cwd=self.folder.name, capture_output=True, text=True)

    def refused(self, *models):
        ran = self.run_script(*models)
        self.assertEqual(ran.returncode, 1)
        self.assertEqual(ran.stderr.count("\n"), 1, ran.stderr)
        return ran.stderr

    def test_ratios_and_intervals(self):
        for task, heads in (("copy", (12, 4, 3, 2)), ("ioi", (20, 10, 10, 10))):
            for model, count in zip(("dense", "a", "b", "c"), heads):
                self.write(model, task, count, kept=count * 1.5, edges=2 * count)
        ran = self.run_script("dense", "a", "b", "c")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        # Ratios 3, 4, 6: mean 13/3, deviation 1.5275, and t = 4.303 over sqrt 3. The means over tasks are 2.5, 3, 4.
        self.assertIn("| copy | 12 | 4 | 3 | 2 | 4.33 ± 3.79 |", ran.stdout)
        self.assertIn("| ioi | 20 | 10 | 10 | 10 | 2.00 ± 0.00 |", ran.stdout)
        self.assertIn("| mean over tasks | | 2.50 x | 3.00 x | 4.00 x | **3.17 ± 1.90** |", ran.stdout)
        self.assertIn("| copy | 18 | 6 | 4.5 | 3 |", ran.stdout)
        self.assertIn("| copy | 24 | 8 | 6 | 4 |", ran.stdout)

    def test_one_seed_has_no_interval(self):
        self.write("dense", "copy", 6)
        self.write("a", "copy", 2)
        self.assertIn("| copy | 6 | 2 | 3.00 |", self.run_script("dense", "a").stdout)

    def test_folders_that_do_not_fit(self):
        self.write("dense", "copy", 6)
        self.write("other", "ioi", 6)
        self.write("nothing", "copy", 0)
        self.write("broken", "copy", 6).write_text("[")
        self.write("heads-only", "copy", 6).write_text('{"at_90": 6}')
        self.assertIn("nowhere has no TASK/circuit.json", self.refused("nowhere", "dense"))
        self.assertIn("other/copy/circuit.json: No such file", self.refused("dense", "other"))
        self.assertIn("no ratio", self.refused("dense", "nothing"))
        self.assertIn("broken/copy/circuit.json is not", self.refused("dense", "broken"))
        self.assertIn("heads-only/copy/circuit.json is not", self.refused("dense", "heads-only"))
        self.assertIn("at most 10", self.refused("dense", *["dense"] * 11))


if __name__ == "__main__":
    unittest.main()
