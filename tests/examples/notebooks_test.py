# SPDX-License-Identifier: MIT
"""notebooks_test.py OUT NOTEBOOK...: runs each notebook from a clean start and looks at what its cells show. The notebooks as they ran
are left in OUT, for people to look at."""
import pathlib
import sys

import nbformat
from nbconvert.preprocessors import ExecutePreprocessor

EXPECTED = {  # kinds of output that a notebook must show, and how many at least
    "first-ten-minutes": {"image/svg+xml": 3, "text/html": 2},
    "from-gpt2-to-sparse-gpt2": {"image/svg+xml": 2},
    "large-into-small": {"image/svg+xml": 3},
}


def shown(notebook):
    counts = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                raise SystemExit(f"a cell failed: {output.ename}: {output.evalue}")
            for kind, content in output.get("data", {}).items():
                if kind == "image/svg+xml" and "<svg" not in content:
                    raise SystemExit("a picture is no SVG")
                counts[kind] = counts.get(kind, 0) + 1
    return counts


out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
for path in map(pathlib.Path, sys.argv[2:]):
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), f"{path}: saved with outputs; clear them"
    ExecutePreprocessor(timeout=250, kernel_name="python3").preprocess(notebook, {"metadata": {"path": str(out)}})
    nbformat.write(notebook, out / path.name)
    counts = shown(notebook)
    print(path.name, counts)
    for kind, least in EXPECTED[path.stem].items():
        if counts.get(kind, 0) < least:
            raise SystemExit(f"{path.name}: {counts.get(kind, 0)} outputs of {kind}, expected at least {least}")
