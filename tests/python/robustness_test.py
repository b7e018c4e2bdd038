# SPDX-License-Identifier: MIT
"""What may go wrong around the module: callbacks that throw, Ctrl-C, many threads, a thousand loads."""
import os
import signal
import tempfile
import threading
import time
import unittest

import numpy as np

import clearhead as ch

PROMPT = "43+25="


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def long_text(folder):
    path = os.path.join(folder, "long.txt")
    with open(path, "w", encoding="ascii") as file:
        for i in range(100000):
            file.write(f"{i % 50}+{i % 47}={i % 50 + i % 47}\n")
    return path


class Robustness(unittest.TestCase):
    def test_a_callback_that_throws_leaves_everything_usable(self):
        model = ch.load("addition")
        expected = model.run(PROMPT).logits

        class Own(Exception):
            pass

        def throw(*_):
            raise Own("of the caller's")

        for _ in range(50):
            with self.assertRaisesRegex(Own, "of the caller's"):
                model.run(PROMPT, hooks={"blocks.1.hook_mlp_out": throw})
            with self.assertRaises(Own):
                model.generate(PROMPT, on_token=throw)
            with self.assertRaisesRegex(ValueError, r"returned the shape \(2,\); expected \(1, 6, 128\)"):
                model.run(PROMPT, hooks={"blocks.1.hook_mlp_out": lambda v, t: np.zeros(2)})
            with self.assertRaises((TypeError, ValueError)):
                model.run(PROMPT, hooks={"blocks.1.hook_mlp_out": lambda v, t: "words"})
        np.testing.assert_array_equal(model.run(PROMPT).logits, expected)

    def test_a_bar_that_throws(self):
        model = ch.load("addition")
        stream = np.array(model.encode(PROMPT) * 2000, np.int32)

        def throw(*_):
            raise ValueError("the bar broke")

        with self.assertRaisesRegex(ValueError, "the bar broke"):
            model._model.evaluate(stream, 8, 0, "hard", throw)
        self.assertGreater(model.evaluate(ids=stream[:100]).tokens, 0)

    def test_a_hook_may_use_the_library(self):
        model = ch.load("addition")
        inner = []
        model.run(PROMPT, hooks={"blocks.1.hook_mlp_out": lambda v, t: inner.append(model.run("11+22=").logits)})
        np.testing.assert_array_equal(inner[0], model.run("11+22=").logits)

    def test_ctrl_c_stops_work(self):
        # A shell that starts a command in the background tells it to ignore Ctrl-C, and the interpreter obeys.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        model = ch.load("addition")
        with tempfile.TemporaryDirectory() as folder:
            text = long_text(folder)
            for work in (lambda: model.evaluate(text),
                         lambda: ch.command("eval", model, text=text),
                         lambda: ch.train(os.path.join(folder, "model"), text=text, steps=100000, layers=2, heads=2, width=32,
                                          vocab=300, context=32, valid=text)):
                timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
                started = time.monotonic()
                timer.start()
                try:
                    with self.assertRaises(KeyboardInterrupt):
                        work()
                        time.sleep(5)  # the work was done before the signal came
                finally:
                    timer.cancel()
                self.assertLess(time.monotonic() - started, 60)
        self.assertGreater(len(model.run(PROMPT).logits), 0)

    def test_other_threads_go_on_meanwhile(self):
        model = ch.load("addition", threads=1)
        counted, done = [0], threading.Event()

        def count():
            while not done.is_set():
                counted[0] += 1
                time.sleep(0.001)

        stream = np.array(model.encode(PROMPT) * 4000, np.int32)
        thread = threading.Thread(target=count)
        thread.start()
        before = counted[0]
        model._model.evaluate(stream, 0, 0, "hard", None)  # one call, without a callback
        during = counted[0] - before
        done.set()
        thread.join()
        self.assertGreater(during, 3)

    def test_many_threads_use_one_model(self):
        model = ch.load("addition", threads=2)
        expected, wrong = model.run(PROMPT, taps="all"), []

        def work():
            for _ in range(30):
                run = model.run(PROMPT, taps="all", hooks={"blocks.2.hook_mlp_out": lambda v, t: None})
                if not np.array_equal(run.logits, expected.logits):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    @unittest.skipIf("CLEARHEAD_SANITIZED" in os.environ, "a sanitizer keeps what was freed, and looks for leaks itself")
    def test_a_thousand_loads_and_runs_leak_nothing(self):
        def once():
            model = ch.load("addition", threads=1)
            model.run(PROMPT, taps="blocks.*.attn.hook_pattern", hooks={"blocks.0.hook_mlp_out": lambda v, t: v})

        for _ in range(100):
            once()
        before = resident()
        for _ in range(1000):
            once()
        growth = resident() - before
        # A model is 3 MB, a run 60 kB: a thousand of either would be far more.
        self.assertLess(growth, 4e6)
        print(f"1000 loads and runs: {growth / 1e3:.0f} kB more")


if __name__ == "__main__":
    unittest.main()
