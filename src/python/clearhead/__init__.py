# SPDX-License-Identifier: MIT
"""Sparse attention for language models, and what every head does.

>>> import clearhead as ch
>>> m = ch.load("addition")
>>> r = m.run("43+25=", taps="blocks.*.attn.hook_pattern")
>>> r["blocks.3.attn.hook_pattern"].shape  # batch, head, query, key
(1, 4, 6, 6)
>>> m.predict("43+25=0")[0].text
'6'

`load` gives a model; `run` its inner values, without a copy, under TransformerLens's names. The functions beside it are the
program's commands: `heads`, `grid`, `scatter`, `circuit`, `trace`, `carriers`, `features`, `lens`, `knockout`, `steer`, `compare`,
`train`, `sparsify`, `view`. Their options are the program's, with underscores: `ch.help("circuit")` prints them. Ctrl-C stops
everything; long work shows a bar.
"""
try:
    from ._clearhead import Error, Interrupted, UsageError
except ImportError as error:  # a library of the system is missing, and the wheel knows which packages have them
    from importlib import metadata as _metadata
    try:
        _packages = _metadata.metadata("clearhead").get_all("Requires-External") or []
    except _metadata.PackageNotFoundError:
        _packages = []
    if not _packages:
        raise
    raise ImportError(f"{error}; install what clearhead needs: apt-get install {' '.join(_packages)}") from None
from ._clearhead import commit as __commit__
from ._clearhead import version as __version__
from .bars import show_progress
from .commands import (carriers, circuit, command, compare, convert, features, grid, heads, help, knockout, lens, report, scatter,
                       sparsify, steer, tasks, trace, train, train_features, view)
from .models import Intervention, Model, Prediction, Run, load, models
from .results import Figure, Page, Result

__all__ = [
    "Error", "Figure", "Interrupted", "Intervention", "Model", "Page", "Prediction", "Result", "Run", "UsageError",
    "carriers", "circuit", "command", "compare", "convert", "features", "grid", "heads", "help", "knockout", "lens", "load",
    "models", "report", "scatter", "show_progress", "sparsify", "steer", "tasks", "trace", "train", "train_features", "view",
]
