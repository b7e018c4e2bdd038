# SPDX-License-Identifier: MIT
"""The program's commands as functions. Options are the program's, with underscores for dashes; models are names, folders or
what `load` gave; answers are documents (Result) with the fields of docs/formats.md."""
import json
import pathlib
import shutil
import tempfile
import weakref

from . import _clearhead
from .bars import Bars
from .models import Model
from .results import Figure, Page, Result


def _text(value):
    if isinstance(value, Model):
        return value.folder
    return str(value)


def _words(name, arguments, options):
    """["heads", "folder", "--sort=score"]: True is a flag, a list is an option given again and again, None is left out."""
    words = [*name.split(), *(_text(argument) for argument in arguments if argument is not None)]
    for option, value in options.items():
        flag = "--" + option.rstrip("_").replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [f"{flag}={_text(item)}" for item in (value if isinstance(value, (list, tuple)) else [value])]
    return words


def command(name, *arguments, **options):
    """What a command prints, as text: `clearhead NAME ARGUMENTS --option value ...`.

    >>> print(command("tokenize", "addition", text="43+"))
         19  "4"
         18  "3"
         10  "+"
    <BLANKLINE>
    """
    with Bars() as progress:
        return _clearhead.command(_words(name, arguments, options), progress)


def help(name=""):
    """Prints what `clearhead NAME --help` prints."""
    print(_clearhead.command([*name.split(), "--help"]))


def _document(name, arguments, options):
    return json.loads(command(name, *arguments, json=True, **options))


def _figure(name, arguments, options):
    """Drawn when it is asked for, in the format that is asked for."""
    return Figure(lambda out: command(name, *arguments, json=True, **{**options, "out": out}), name)


def _with_folder(name, title, arguments, options, out):
    """A command that writes a folder: into `out`, or into one that lives as long as the result."""
    where = tempfile.mkdtemp(prefix="clearhead-") if out is None else str(out)
    document = _document(name, arguments, {**options, "out": where})
    figures = {path.stem: Figure.from_file(path) for path in sorted(pathlib.Path(where).glob("*.svg"))}
    result = Result(document, title, figures, where)
    if out is None:
        weakref.finalize(result, shutil.rmtree, where, ignore_errors=True)
    return result


def heads(*models, **options):
    """What every head does: statistics, a name, a sentence for each; two models are compared head by head.

    >>> report = heads("addition", prompt="43+25=")
    >>> report.models[0].heads[0].head, len(report.models[0].heads)
    ('L0H0', 16)
    """
    return Result(_document("heads", models, options), "Heads")


def grid(*models, **options):
    """The attention maps of many heads as one figure, a panel per model.

    >>> grid("addition", "addition-sparse", prompt="43+25=", heads="L0H0,L1H2")
    <grid: a figure; save(path) writes it as .svg, .pdf or .png>
    """
    return _checked(_figure("grid", models, options))


def scatter(*models, **options):
    """The weights of heads against each other's on the same pairs, as a figure."""
    return _checked(_figure("scatter", models, options))


def _checked(figure):
    figure.svg  # noqa: B018: what cannot be drawn is said here, not when a notebook shows it
    return figure


def circuit(*models, out=None, **options):
    """Which heads and edges a task needs, in one or two models: a Result with figures.

    >>> found = circuit("addition", task="digits", n=6, random=1)
    >>> sorted(found.figures)
    ['curve-heads', 'heads']
    """
    return _with_folder("circuit", "Circuit", models, options, out)


def trace(model, features, prompt=None, out=None, **options):
    """The attribution graph of a prompt, pruned and grouped: a Result with a figure, and graph.json in its folder for
    circuit-tracer's and Neuronpedia's pages."""
    return _with_folder("trace", "Trace", (model, features), {"prompt": prompt, **options}, out)


def carriers(*models, **options):
    """Which heads carry what is at one position to another: a Result with a figure."""
    return Result(_document("carriers", models, options), "Carriers", {"carriers": _figure("carriers", models, options)})


def features(model, features, feature=None, **options):
    """One feature (feature="L3F512"), features by text (find="..."), or what fires where (prompt="...")."""
    return Result(_document("features show", (model, features, feature), options), "Features")


def lens(model, prompt=None, **options):
    """What each layer's stream, and each head's output, would predict: a Result with a figure."""
    options = {"prompt": prompt, **options}
    return Result(_document("lens", (model,), options), "Lens", {"lens": _figure("lens", (model,), options)})


def knockout(model, prompt=None, cut=(), **options):
    """Loss and predictions with chosen attention edges cut: cut="L3H5:8<-5", "L3H5", or a list of them."""
    options = {"prompt": prompt, "cut": [cut] if isinstance(cut, str) else list(cut), **options}
    return Result(_document("knockout", (model,), options), "Knockout", {"knockout": _figure("knockout", (model,), options)})


def steer(model, prompt=None, **options):
    """A direction, a head's output or a feature added at a position, in growing doses: a Result with a figure."""
    options = {"prompt": prompt, **options}
    return Result(_document("steer", (model,), options), "Steer", {"steer": _figure("steer", (model,), options)})


def compare(a, b, **options):
    """Two models on the same text or prompts: losses, edges, agreement."""
    return Result(_document("compare", (a, b), options), "Comparison")


def tasks(name, **options):
    """Prompts of a task with their corrupted twins.

    >>> tasks("addition", n=1).tasks[0].examples[0].answers
    ['95']
    """
    return Result({"tasks": _document("tasks", (name,), options)}, "Tasks")


def train(out, **options):
    """A dense model from text, in the folder `out`: text=[...], steps or tokens, layers, heads, width, ..."""
    return Result(_document("train", (), {"out": out, **options}), "Training")


def sparsify(model, out, **options):
    """Closes as many attention gates as the model's loss allows; the sparse model is in the folder `out`."""
    return _with_folder("sparsify", "Sparsifying", (model,), options, out)


def train_features(model, out, **options):
    """A transcoder of a model, in the folder `out`."""
    return Result(_document("features train", (model,), {"out": out, **options}), "Transcoder")


def convert(model, out, **options):
    """A model stored again: another type of weights, or from another layout."""
    return Result(_document("convert", (model,), {"out": out, **options}), "Conversion")


def report(*models, out, **options):
    """The page with its data in one file."""
    return Result(_document("report", models, {"out": out, **options}), "Report")


def view(*models, prompt=None, height=720, **options):
    """The page's own view of one or two models, inline: from one piece of HTML that needs no server and no network.

    >>> view("addition", "addition-sparse", prompt="43+25=")  # doctest: +ELLIPSIS
    <a page of ... MB; save(path) writes it as one HTML file>
    """
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "page.html"
        report(*models, out=out, prompt=prompt, **options)
        return Page(out.read_text(encoding="utf-8"), height)
