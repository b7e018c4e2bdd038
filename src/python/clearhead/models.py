# SPDX-License-Identifier: MIT
"""Models in memory: tokens, runs, text, loss."""
import collections
import collections.abc
import html

import numpy as np

from . import _clearhead
from ._clearhead import Intervention
from .bars import Bars

Prediction = collections.namedtuple("Prediction", "token text probability")
Prediction.__doc__ = "A token that may come next, its text and its probability."


def models():
    """Names of the models that ship.

    >>> "addition" in models()
    True
    """
    return _clearhead.shipped()


def load(name, threads=0):
    """A model: a folder in Hugging Face's layout, or the name of one that ships. `threads` 0: all cores.

    >>> m = load("addition", threads=1)
    >>> m.layers, m.heads, m.gated
    (4, 4, False)
    """
    return Model(_clearhead.Model.load(str(name), threads))


def as_array(values, dtype):
    """numpy's view of whatever was given: lists, arrays, CPU tensors by DLPack (torch's among them)."""
    if not isinstance(values, np.ndarray) and hasattr(values, "__dlpack__"):
        if hasattr(values, "detach"):
            values = values.detach()
        device = values.__dlpack_device__()[0] if hasattr(values, "__dlpack_device__") else 1
        if int(device) != 1:
            raise ValueError("this tensor is not in the CPU's memory; move it there first: tensor.cpu()")
        values = np.from_dlpack(values)
    return np.asarray(values, dtype=dtype)


class Model:
    """What `load` gives. Its sizes are attributes: layers, heads, width, positions, vocabulary, gated, ..."""

    def __init__(self, loaded):
        self._model = loaded

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._model.info, name)

    def __repr__(self):
        kind = "gated attention" if self.gated else "softmax attention"
        return (f"<{self.name}: {self.layers} layers of {self.heads} heads, width {self.width}, {kind}, "
                f"{self.parameters / 1e6:.1f} million parameters>")

    def to_dict(self):
        info = self._model.info
        return {name: getattr(info, name) for name in dir(info) if not name.startswith("_")}

    # ---- tokens ----

    def encode(self, text):
        """What the model reads of a text, as ids.

        >>> load("addition").encode("43+25=")
        [19, 18, 10, 17, 20, 28]
        """
        return self._model.encode(text)

    def decode(self, ids):
        """The text of ids."""
        return self._model.decode([int(i) for i in as_array(ids, np.int32).ravel()])

    def tokens(self, prompt):
        """The tokens of a text (or of ids), each as text for people.

        >>> load("addition").tokens("43+25=")
        ['4', '3', '+', '2', '5', '=']
        """
        return [self._model.token_text(int(i)) for i in self._ids(prompt).ravel()]

    def token(self, text):
        """The id of a text that is one token."""
        return self._model.single_token(text)

    def _ids(self, prompt):
        if isinstance(prompt, str):
            prompt = self._model.encode(prompt)
        elif isinstance(prompt, (list, tuple)) and prompt and all(isinstance(p, str) for p in prompt):
            rows = [self._model.encode(p) for p in prompt]
            if len({len(row) for row in rows}) > 1:
                raise ValueError(f"prompts of one batch must have one length; these have {[len(row) for row in rows]} tokens")
            prompt = rows
        ids = as_array(prompt, np.int64)
        if ids.ndim not in (1, 2):
            raise ValueError(f"ids have {ids.ndim} axes; expected [length] or [batch, length]")
        if ids.size and (ids.min() < -2**31 or ids.max() >= 2**31):
            raise ValueError("an id does not fit 32 bits")
        return np.ascontiguousarray(ids, dtype=np.int32)

    # ---- runs ----

    @property
    def taps(self):
        """Names of all taps, in the order of the forward pass."""
        return self._model.tap_names()

    def run(self, prompt, taps=(), gradients=False, interventions=(), hooks=None, gates="hard"):
        """Runs the model and keeps what is asked for.

        prompt         text, ids [length] or [batch, length], or a list of texts of one length
        taps           names or a comma list of them, * matches anything; "all"
        gradients      also the mean next-token loss and its gradients by parameters and taps
        interventions  a list of Intervention
        hooks          {tap: f or array}: f(value, tap) returns the new value, or changes its array in place; an array
                       replaces the value (shapes as numpy repeats them)
        gates          of gated models: "hard", or "open" (the same weights as a dense model)

        >>> m = load("addition")
        >>> m.run("43+25=", taps="blocks.0.hook_mlp_out")["blocks.0.hook_mlp_out"].shape
        (1, 6, 128)
        >>> def off(value, tap):
        ...     value[:, :, 2] = 0  # head 2
        >>> changed = m.run("43+25=", hooks={"blocks.1.attn.hook_z": off})
        >>> same = m.run("43+25=", interventions=[Intervention("blocks.1.attn.hook_z", heads=[2])])
        >>> bool((changed.logits == same.logits).all())
        True
        """
        ids = self._ids(prompt)
        batch = ids.shape[0] if ids.ndim == 2 else 1
        length = ids.shape[-1]
        wanted = taps if isinstance(taps, str) else ",".join(taps)
        changes, functions = list(interventions), []
        for names, hook in (hooks or {}).items():
            if callable(hook):
                functions.append((names, hook))
                continue
            values = as_array(hook, np.float32)
            for name in self._model.match_taps(names):
                shape = tuple(self._model.tap_shape(name, batch, length))
                try:
                    whole = np.broadcast_to(values, shape)
                except ValueError:
                    raise ValueError(f"hooks: an array of shape {values.shape} does not fill {name}, which is {shape}") from None
                changes.append(Intervention(name, "set", values=whole))
        logits, kept, loss, slopes = self._model.run(ids.ravel(), batch, wanted, gradients, changes, functions, gates)
        return Run(self, ids.reshape(batch, length), logits, kept, loss, slopes)

    def __call__(self, prompt, **options):
        """The logits [batch, length, vocabulary]."""
        return self.run(prompt, **options).logits

    # ---- text ----

    def generate(self, prompt, max_new=64, temperature=0.0, top_k=0, seed=0, stop_at_end=True, gates="hard", on_token=None):
        """The prompt and what the model writes after it: text for text, else ids. on_token(id) sees every token.

        >>> load("addition").generate("43+25=", max_new=3)  # sums have three digits, from the right
        '43+25=068'
        """
        ids = self._model.generate(self._ids(prompt).ravel(), max_new, temperature, top_k, seed, stop_at_end, gates, on_token)
        return self.decode(ids) if isinstance(prompt, str) else ids

    def predict(self, prompt, count=10, gates="hard"):
        """The likeliest next tokens."""
        return [Prediction(*p) for p in self._model.predict(self._ids(prompt).ravel(), count, gates)]

    def evaluate(self, text=None, *, ids=None, context=0, tokens=0, gates="hard"):
        """Loss and perplexity on a file, or on ids: a Result as `clearhead eval --json` has it."""
        from .results import Result
        if (text is None) == (ids is None):
            raise ValueError("give either a file or ids")
        stream = self._model.encode_file(str(text)) if ids is None else self._ids(ids).ravel()
        with Bars() as progress:
            return Result(self._model.evaluate(stream, context, tokens, gates, progress), "Evaluation")


_SHORT = {  # TransformerLens's short names: cache["pattern", 3]
    "pattern": "attn.hook_pattern", "attn_scores": "attn.hook_attn_scores", "q": "attn.hook_q", "k": "attn.hook_k",
    "v": "attn.hook_v", "z": "attn.hook_z", "result": "attn.hook_result", "resid_pre": "hook_resid_pre",
    "resid_mid": "hook_resid_mid", "resid_post": "hook_resid_post", "attn_out": "hook_attn_out", "mlp_out": "hook_mlp_out",
    "pre": "mlp.hook_pre", "post": "mlp.hook_post",
}


class Run(collections.abc.Mapping):
    """What a run kept: a mapping from TransformerLens's names to arrays that share the library's memory.

    >>> r = load("addition").run("43+25=", taps="blocks.*.attn.hook_pattern")
    >>> r["pattern", 3] is r["blocks.3.attn.hook_pattern"]  # its short names, too
    True
    >>> len(r), r.logits.shape
    (4, (1, 6, 257))
    """

    def __init__(self, model, ids, logits, taps, loss, gradients):
        self.model, self.ids, self.logits = model, ids, logits
        self.taps, self.loss, self.gradients = taps, loss, gradients

    def __getitem__(self, name):
        if isinstance(name, tuple):
            short, layer = name
            name = f"blocks.{layer % self.model.layers}.{_SHORT.get(short, short)}"
        if name not in self.taps:
            raise KeyError(f"{name} was not kept; ask for it: run(..., taps=[{name!r}])")
        return self.taps[name]

    def __iter__(self):
        return iter(self.taps)

    def __len__(self):
        return len(self.taps)

    @property
    def tokens(self):
        """The first sequence's tokens as texts."""
        return self.model.tokens(self.ids[0])

    def to_dict(self):
        """ids, logits, loss, and every tap and gradient by name: arrays, as `clearhead capture` writes them."""
        out = {"ids": self.ids, "logits": self.logits, **self.taps}
        if self.loss is not None:
            out["loss"] = self.loss
            out.update({f"grad.{name}": value for name, value in self.gradients.items()})
        return out

    def __repr__(self):
        lines = [f"Run of {self.model.name}: {self.ids.shape[0]} x {self.ids.shape[1]} tokens, logits {list(self.logits.shape)}"]
        if self.loss is not None:
            lines.append(f"  loss {self.loss:.6g}, {len(self.gradients)} gradients")
        lines += [f"  {name} {list(value.shape)}" for name, value in list(self.taps.items())[:8]]
        if len(self.taps) > 8:
            lines.append(f"  ... {len(self.taps)} taps in all")
        return "\n".join(lines)

    def _repr_html_(self):
        rows = "".join(f"<tr><td><code>{html.escape(name)}</code></td><td>{list(value.shape)}</td></tr>"
                       for name, value in self.taps.items())
        return f"<pre>{html.escape(repr(self).splitlines()[0])}</pre><table>{rows}</table>"
