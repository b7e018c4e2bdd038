# SPDX-License-Identifier: MIT
"""Progress bars: tqdm's where it is installed, else one line; only where somebody can see it."""
import sys

_shown = None  # None: on a terminal and in a notebook


def show_progress(show=None):
    """True: always; False: never; None, as at first: on a terminal and in a notebook."""
    global _shown
    _shown = show


def in_notebook():
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})


class _Line:
    """What tqdm would do, without it."""

    def __init__(self, desc, total, unit):
        self.desc, self.total, self.unit = desc, total, unit

    def show(self, done, extra):
        share = f" {100 * done // self.total} %" if self.total else ""
        print(f"\r{self.desc} {done}{f'/{self.total}' if self.total else ''} {self.unit}{share} {extra}"[:120],
              end="\033[K", file=sys.stderr, flush=True)

    def close(self):
        print(file=sys.stderr)


class _Tqdm:
    def __init__(self, desc, total, unit):
        import tqdm
        self.bar = tqdm.tqdm(desc=desc, total=total or None, unit=unit, unit_scale=True, leave=True, file=sys.stderr)

    def show(self, done, extra):
        self.bar.n = done
        if extra:
            self.bar.set_postfix_str(extra, refresh=False)
        self.bar.refresh()

    def close(self):
        self.bar.close()


def _make(desc, total, unit):
    try:
        return _Tqdm(desc, total, unit)
    except ImportError:
        return _Line(desc, total, unit)


class Bars:
    """A `with` block whose value is what the library calls with its progress: one bar for each piece of work."""

    def __init__(self):
        self.label, self.bar = None, None

    def __enter__(self):
        shown = _shown
        if shown is None:
            shown = in_notebook() or sys.stderr.isatty()
        return self.show if shown else None

    def __exit__(self, *_):
        self.close()

    def show(self, label, done, total, unit, extra, finished):
        if label != self.label:
            self.close()
            self.label, self.bar = label, _make(label, total, unit)
        self.bar.show(done, extra)
        if finished:
            self.close()

    def close(self):
        if self.bar is not None:
            self.bar.close()
        self.label = self.bar = None
