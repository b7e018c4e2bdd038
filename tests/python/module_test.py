# SPDX-License-Identifier: MIT
"""Models in Python: the numbers of the program, in arrays that share its memory."""
import gc
import json
import pathlib
import tempfile
import unittest

import numpy as np

import clearhead as ch

PROMPT = "43+25="


class Runs(unittest.TestCase):
    def setUp(self):
        self.model = ch.load("addition")

    def test_numbers_are_the_programs(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "run.safetensors"
            ch.command("capture", self.model, prompt=PROMPT, taps="blocks.*.hook_resid_post", gradients=True, out=out)
            raw = out.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:8 + size])
        run = self.model.run(PROMPT, taps="blocks.*.hook_resid_post", gradients=True)
        theirs = run.to_dict()
        self.assertGreater(len(header), 20)
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            values = np.frombuffer(raw[8 + size + begin:8 + size + end], np.int32 if entry["dtype"] == "I32" else np.float32)
            ours = np.asarray(theirs[name], dtype=values.dtype)
            self.assertEqual(ours.size, values.size, name)
            # Products may be cut differently for another number of threads.
            np.testing.assert_allclose(ours.ravel(), values, rtol=2e-4, atol=2e-5, err_msg=name)

    def test_arrays_are_not_copies_and_keep_memory_alive(self):
        run = self.model.run(PROMPT, taps="blocks.*.attn.hook_pattern")
        pattern = run["pattern", 3]
        address = pattern.__array_interface__["data"][0]
        self.assertFalse(pattern.flags.owndata)
        self.assertEqual(type(pattern.base).__name__, "PyCapsule")
        self.assertEqual(address % 64, 0)  # as the library's buffers are, and numpy's are not
        self.assertEqual(run.to_dict()["blocks.3.attn.hook_pattern"].__array_interface__["data"][0], address)
        before = pattern.copy()
        view = pattern[0, 1]
        del run, self.model, pattern
        gc.collect()
        other = [ch.load("addition").run(PROMPT, taps="all") for _ in range(5)]  # would reuse what was freed
        np.testing.assert_array_equal(view, before[0, 1])
        self.assertEqual(view.__array_interface__["data"][0], address + before[0, 0].nbytes)
        del other

    def test_hooks_get_values_in_order_and_change_them(self):
        seen = []

        def double(value, tap):
            seen.append((tap, value.shape))
            return 2 * value

        run = self.model.run(PROMPT, hooks={"blocks.*.hook_mlp_out": double})
        self.assertEqual(seen, [(f"blocks.{i}.hook_mlp_out", (1, 6, 128)) for i in range(4)])
        same = self.model.run(PROMPT, interventions=[
            ch.Intervention("blocks.*.hook_mlp_out", "scale", values=np.full((1, 1, 1), 2.0))])
        np.testing.assert_array_equal(run.logits, same.logits)
        self.assertGreater(np.abs(run.logits - self.model.run(PROMPT).logits).max(), 0.1)

    def test_what_a_hook_keeps_stays(self):
        kept = []
        self.model.run(PROMPT, hooks={"blocks.2.attn.hook_z": lambda value, tap: kept.append(value)})
        run = self.model.run(PROMPT, taps="blocks.2.attn.hook_z")
        np.testing.assert_array_equal(kept[0], run["z", 2])

    def test_arrays_as_hooks(self):
        clean = self.model.run("43+25=", taps="blocks.1.hook_resid_pre")
        other = self.model.run("11+22=")
        patched = self.model.run("11+22=", hooks={"blocks.1.hook_resid_pre": clean["resid_pre", 1]})
        np.testing.assert_allclose(patched.logits, clean.logits, rtol=1e-5, atol=1e-5)
        self.assertGreater(np.abs(other.logits - clean.logits).max(), 0.1)
        zero = self.model.run(PROMPT, hooks={"blocks.1.hook_mlp_out": 0.0}, taps="blocks.1.hook_mlp_out")
        self.assertEqual(np.abs(zero["mlp_out", 1]).max(), 0)
        with self.assertRaisesRegex(ValueError, r"shape \(5,\) does not fill blocks.1.hook_mlp_out"):
            self.model.run(PROMPT, hooks={"blocks.1.hook_mlp_out": np.zeros(5)})

    def test_gradients(self):
        run = self.model.run("43+25=68", taps="blocks.2.hook_resid_pre", gradients=True)
        slope = run.gradients["blocks.2.hook_resid_pre"]
        step = 1e-2 * slope / np.linalg.norm(slope)
        moved = self.model.run("43+25=68", gradients=True,
                               interventions=[ch.Intervention("blocks.2.hook_resid_pre", "add", values=step)])
        self.assertAlmostEqual((moved.loss - run.loss) / 1e-2, np.linalg.norm(slope), delta=0.05 * np.linalg.norm(slope) + 1e-3)
        with self.assertRaisesRegex(ch.Error, "derivative of a hook"):
            self.model.run(PROMPT, gradients=True, hooks={"hook_embed": lambda v, t: v})

    def test_every_kind_of_prompt(self):
        ids = self.model.encode(PROMPT)
        expected = self.model.run(PROMPT).logits

        class Tensor:  # what torch shows of a CPU tensor
            def __init__(self, values):
                self.values = np.asarray(values)

            def __dlpack__(self, stream=None):
                return self.values.__dlpack__()

            def __dlpack_device__(self):
                return self.values.__dlpack_device__()

        class OnGpu(Tensor):
            def __dlpack_device__(self):
                return (2, 0)

        for prompt in (ids, tuple(ids), np.array(ids), np.array([ids], np.int64), Tensor(ids), Tensor([ids])):
            np.testing.assert_array_equal(self.model.run(prompt).logits, expected)
        with self.assertRaisesRegex(ValueError, "cpu"):
            self.model.run(OnGpu(ids))
        batch = self.model.run(["43+25=", "11+22="], taps="blocks.0.attn.hook_pattern")
        self.assertEqual(batch["pattern", 0].shape, (2, 4, 6, 6))
        np.testing.assert_allclose(batch.logits[0], expected[0], rtol=1e-4, atol=1e-5)
        with self.assertRaisesRegex(ValueError, "one length"):
            self.model.run(["43+25=", "1+1="])
        with self.assertRaisesRegex(ValueError, "axes"):
            self.model.run(np.zeros((1, 2, 3), int))
        with self.assertRaisesRegex(ValueError, "32 bits"):
            self.model.run([2**40])

    def test_gated_models(self):
        sparse = ch.load("addition-sparse")
        self.assertTrue(sparse.gated)
        hard = sparse.run(PROMPT, taps="blocks.*.attn.hook_pattern")
        opened = sparse.run(PROMPT, taps="blocks.*.attn.hook_pattern", gates="open")
        np.testing.assert_allclose(opened["pattern", 1].sum(-1), 1, atol=1e-5)
        self.assertLess(sum((p > 0).sum() for p in hard.taps.values()), sum((p > 0).sum() for p in opened.taps.values()))
        with self.assertRaisesRegex(ValueError, "gates='ajar'"):
            sparse.run(PROMPT, gates="ajar")

    def test_text(self):
        self.assertEqual(self.model.generate(PROMPT, max_new=3), "43+25=068")
        seen = []
        ids = self.model.generate(self.model.encode(PROMPT), max_new=3, stop_at_end=False, on_token=seen.append)
        self.assertEqual(ids[6:], seen)
        best = self.model.predict(PROMPT + "0", 3)
        self.assertEqual((len(best), best[0].text), (3, "6"))
        self.assertEqual(self.model.token("6"), best[0].token)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("43+25=68\n" * 40)
            file.flush()
            evaluation = self.model.evaluate(file.name)
            self.assertAlmostEqual(evaluation.loss, self.model.evaluate(ids=self.model.encode("43+25=68\n" * 40)).loss, 6)
            self.assertAlmostEqual(evaluation.perplexity, np.exp(evaluation.loss), 6)

    def test_refusals_say_what_is_wrong(self):
        with self.assertRaisesRegex(ch.Error, "there is no model 'nobody'"):
            ch.load("nobody")
        with self.assertRaisesRegex(ch.Error, "blocks.9"):
            self.model.run(PROMPT, taps="blocks.9.hook_mlp_out")
        with self.assertRaisesRegex(ch.Error, "vocabulary"):
            self.model.run([100000])
        with self.assertRaisesRegex(KeyError, "ask for it"):
            self.model.run(PROMPT)["pattern", 0]
        with self.assertRaisesRegex(ch.UsageError, "--help"):
            ch.heads(self.model, no_such_option=3)
        with self.assertRaises(AttributeError):
            self.model.colour

    def test_words_for_people(self):
        self.assertIn("4 layers of 4 heads", repr(self.model))
        run = self.model.run(PROMPT, taps="all")
        self.assertIn("taps in all", repr(run))
        self.assertIn("hook_pattern", run._repr_html_())
        self.assertEqual(run.tokens, list(PROMPT))
        self.assertEqual(self.model.to_dict()["layers"], 4)


if __name__ == "__main__":
    unittest.main()
