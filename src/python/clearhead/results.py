# SPDX-License-Identifier: MIT
"""What the commands answer: documents with attributes, figures and pages that show themselves in a notebook."""
import html
import json
import pathlib
import tempfile


def _wrap(value):
    if isinstance(value, dict):
        return Result(value)
    if isinstance(value, list):
        return [_wrap(item) for item in value]
    return value


def _short(value):
    if isinstance(value, dict):
        return "{" + ", ".join(value) + "}" if len(value) <= 6 else f"{{{len(value)} fields}}"
    if isinstance(value, list):
        return repr(value) if len(value) <= 4 and not any(isinstance(v, (dict, list)) for v in value) else f"[{len(value)} items]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return repr(value)


class Result:
    """A document of docs/formats.md. Its fields are attributes, and theirs in turn; `to_dict()` gives it as it is.

    >>> r = Result({"loss": 1.25, "heads": [{"head": "L0H1", "kind": "induction"}]})
    >>> r.loss, r.heads[0].kind
    (1.25, 'induction')
    >>> r
    Result
      loss   1.25
      heads  [1 items]
    """

    def __init__(self, document, name=None, figures=None, folder=None):
        self._document, self._name = document, name
        self._figures, self._folder = dict(figures or {}), folder

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._document:
            return _wrap(self._document[name])
        raise AttributeError(f"{self._name or 'this result'} has no field '{name}'; it has {', '.join(self._document)}")

    def __getitem__(self, name):
        return _wrap(self._document[name])

    def __contains__(self, name):
        return name in self._document

    def __iter__(self):
        return iter(self._document)

    def keys(self):
        return self._document.keys()

    def __dir__(self):
        return [*super().__dir__(), *self._document]

    def __eq__(self, other):
        return isinstance(other, Result) and self._document == other._document

    __hash__ = None

    def to_dict(self):
        """The whole document as plain dicts, lists, numbers and strings: a copy of its own."""
        return json.loads(json.dumps(self._document))

    @property
    def figures(self):
        """Pictures of it by name."""
        return dict(self._figures)

    @property
    def folder(self):
        """Where its files are; a temporary one lives as long as the result."""
        return None if self._folder is None else pathlib.Path(self._folder)

    def __repr__(self):
        fields = {name: value for name, value in self._document.items() if name != "schema"}
        width = max((len(name) for name in fields), default=0)
        lines = [f"  {name:<{width}}  {_short(value)}" for name, value in fields.items()]
        if self._figures:
            lines.append(f"  figures: {', '.join(self._figures)}")
        return "\n".join([self._name or "Result", *lines])

    def _repr_svg_(self):
        for figure in self._figures.values():
            return figure.svg
        return None


class Figure:
    """A picture: shows itself in a notebook; `save("x.svg")`, `.pdf` or `.png` writes it."""

    def __init__(self, draw, name="Figure"):
        self._draw, self._name, self._bytes = draw, name, {}

    @classmethod
    def from_file(cls, path):
        """One that is drawn already, as SVG."""
        content = pathlib.Path(path).read_bytes()

        def draw(out):
            if pathlib.Path(out).suffix != ".svg":
                raise ValueError(f"'{out}': this figure is an SVG file; save it as .svg")
            pathlib.Path(out).write_bytes(content)

        return cls(draw, pathlib.Path(path).stem)

    def save(self, path):
        self._draw(str(path))

    def _as(self, kind):
        if kind not in self._bytes:
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / f"figure.{kind}"
                self._draw(str(path))
                self._bytes[kind] = path.read_bytes()
        return self._bytes[kind]

    @property
    def svg(self):
        return self._as("svg").decode()

    @property
    def png(self):
        return self._as("png")

    def _repr_svg_(self):
        return self.svg

    def __repr__(self):
        return f"<{self._name}: a figure; save(path) writes it as .svg, .pdf or .png>"


class Page:
    """The program's page with its data inside, in a frame of the notebook; `save(path)` writes the file."""

    def __init__(self, content, height=720):
        self.html, self.height = content, height

    def save(self, path):
        pathlib.Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self):
        return (f'<iframe srcdoc="{html.escape(self.html, quote=True)}" width="100%" height="{self.height}" '
                'style="border:0" sandbox="allow-scripts"></iframe>')

    def __repr__(self):
        return f"<a page of {len(self.html) / 1e6:.1f} MB; save(path) writes it as one HTML file>"
