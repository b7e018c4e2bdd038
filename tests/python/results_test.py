# SPDX-License-Identifier: MIT
"""The program's commands in Python: documents, figures, pages, bars."""
import contextlib
import io
import pathlib
import pickle
import sys
import tempfile
import unittest

import clearhead as ch

PROMPT = "43+25="


class Results(unittest.TestCase):
    def test_documents(self):
        report = ch.heads(ch.load("addition"), "addition-sparse", prompt=PROMPT, sort="score")
        self.assertEqual(report.schema, "clearhead.heads.1")
        self.assertEqual([m.label for m in report.models], ["addition", "addition-sparse"])
        head = report.models[0].heads[0]
        self.assertIn(head.kind, report.models[0].summary.kinds.to_dict())
        self.assertIn("models", dir(report))
        self.assertIn("models      [2 items]", repr(report))
        self.assertEqual(report.to_dict()["models"][0]["label"], "addition")
        with self.assertRaisesRegex(AttributeError, "has no field 'model'; it has schema, models"):
            report.model
        self.assertEqual(pickle.loads(pickle.dumps(head.to_dict())), head.to_dict())

    def test_figures(self):
        grid = ch.grid("addition", "addition-sparse", prompt=PROMPT)
        self.assertTrue(grid._repr_svg_().lstrip().startswith("<?xml"))
        self.assertEqual(grid.png[:8], b"\x89PNG\r\n\x1a\n")
        with tempfile.TemporaryDirectory() as folder:
            for suffix, start in ((".svg", b"<?xml"), (".pdf", b"%PDF"), (".png", b"\x89PNG")):
                path = pathlib.Path(folder) / f"grid{suffix}"
                grid.save(path)
                self.assertTrue(path.read_bytes().startswith(start))
        with self.assertRaisesRegex(ch.Error, "L9H9"):
            ch.grid("addition", prompt=PROMPT, heads="L9H9")

    def test_a_circuit_and_its_files(self):
        with tempfile.TemporaryDirectory() as folder:
            found = ch.circuit("addition", task="digits", n=6, random=1, out=folder)
            self.assertEqual(found.folder, pathlib.Path(folder))
            self.assertTrue((pathlib.Path(folder) / "graph.json").exists())
        self.assertIn("<svg", found._repr_svg_())
        temporary = ch.circuit("addition", task="digits", n=6, random=1)
        self.assertTrue((temporary.folder / "circuit.json").exists())
        self.assertEqual(temporary.to_dict(), found.to_dict())

    def test_a_trace(self):
        trace = ch.trace("tale", "tale-features", prompt='<|endoftext|>The opposite of "large" is "', max_features=60)
        self.assertEqual(trace.schema, "clearhead.trace.1")
        self.assertIn("graph", trace.figures)
        self.assertTrue((trace.folder / "graph.json").exists())
        fired = ch.features("tale", "tale-features", "L3F12")
        self.assertIn("L3F12", repr(fired.to_dict()))

    def test_a_page_in_a_cell(self):
        page = ch.view("addition", "addition-sparse", prompt=PROMPT)
        frame = page._repr_html_()
        self.assertTrue(frame.startswith("<iframe srcdoc=") and frame.endswith("</iframe>"))
        self.assertNotIn("<script", frame)  # all of the page is inside the attribute
        for outside in ('src="http', "src='http", 'href="http'):
            self.assertNotIn(outside, page.html.split("</head>")[0])

    def test_training_and_sparsifying_with_bars(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "text.txt"
            text.write_text("The cat sat on the mat, and the other cat sat on the other mat.\n" * 60)
            shape = dict(layers=1, heads=2, width=16, vocab=270, context=16, batch=4, text=text)
            errors = io.StringIO()
            ch.show_progress(True)
            try:
                with contextlib.redirect_stderr(errors):
                    trained = ch.train(f"{folder}/dense", steps=30, **shape)
            finally:
                ch.show_progress(None)
            self.assertEqual(trained.steps, 30)
            self.assertIn("train", errors.getvalue())
            dense = ch.load(f"{folder}/dense")
            sparse = ch.sparsify(dense, f"{folder}/sparse", text=text, steps=20, tolerance=5, context=16, batch=4)
            self.assertLessEqual(sparse.best.edge_fraction, 1)
            self.assertTrue(ch.load(f"{folder}/sparse").gated)
            compared = ch.compare(dense, f"{folder}/sparse", text=text)
            self.assertIn("difference", repr(compared.to_dict()))
            with self.assertRaisesRegex(ch.Error, "resume|another"):
                ch.train(f"{folder}/dense", steps=30, **shape)

    def test_bars_without_tqdm(self):
        errors = io.StringIO()
        hidden, sys.modules["tqdm"] = sys.modules.get("tqdm"), None
        ch.show_progress(True)
        try:
            with contextlib.redirect_stderr(errors), tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
                file.write("43+25=68\n" * 400)
                file.flush()
                ch.load("addition").evaluate(file.name, context=8)
        finally:
            ch.show_progress(None)
            if hidden is None:
                del sys.modules["tqdm"]
            else:
                sys.modules["tqdm"] = hidden
        self.assertIn("eval", errors.getvalue())

    def test_nothing_is_shown_where_nobody_looks(self):
        errors, out = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(out):
            ch.heads("addition", prompt=PROMPT)
        self.assertEqual(errors.getvalue() + out.getvalue(), "")


if __name__ == "__main__":
    unittest.main()
