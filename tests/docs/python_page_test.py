# SPDX-License-Identifier: MIT
"""The code of docs/python.md: that it compiles, and that it computes what the page says.

    python_page_test.py PAGE DATA      DATA: the project's tests/data
"""

import array
import json
import struct
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

from plain_tensor import Tensor, Torch


def read_safetensors(path):
    data = Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32"
        first, last = entry["data_offsets"]
        tensors[name] = Tensor(array.array("f", data[8 + size + first:8 + size + last]), entry["shape"])
    return tensors


def blocks_of(page):
    parts = Path(page).read_text().split("```python\n")[1:]
    return [compile(part.split("```")[0], f"{page}, block {i}", "exec") for i, part in enumerate(parts)]


def run_block(code):
    torch, transformers = ModuleType("torch"), ModuleType("transformers")
    for name in ("bool", "ones", "zeros", "cat"):
        setattr(torch, name, getattr(Torch, name))
    registered = {}
    transformers.AttentionInterface = SimpleNamespace(register=registered.__setitem__)
    transformers.AutoModelForCausalLM = None
    sys.modules.update(torch=torch, transformers=transformers)
    names = {"__name__": "page"}
    exec(code, names)
    return names, registered


def check_attention(code, data):
    """Against the official kernel's outputs, whole and as the last query alone against cached keys."""
    _, registered = run_block(code)
    attention, checked = registered["clearhead"], 0
    for name in ("b1h2t16d8", "b2h3t33d16"):
        tensors = read_safetensors(data / "sparse-attention" / (name + ".safetensors"))
        cases = json.loads((data / "sparse-attention" / (name + ".json")).read_text())["cases"]
        q, k, v = tensors["q"], tensors["k"], tensors["v"]
        for case in (c for c in cases if not c["sample"]):
            module = SimpleNamespace(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, layer_idx=3,
                                     config=SimpleNamespace(clearhead={"gate_bias": case["gate_bias"]}))
            out, weights = attention(module, q, k, v, None, dropout=0.0)
            expected, gates = tensors[case["key"] + ".y"], tensors[case["key"] + ".adj"]
            out = out.transpose(1, 2)  # back to [batch, head, query, d]
            assert out.shape == expected.shape
            assert max(abs(x - y) for x, y in zip(out.values, expected.values)) < 1e-5, (name, case["key"])
            t = q.shape[2]
            for i, (weight, gate) in enumerate(zip(weights.values, gates.values)):
                assert (weight > 0) == (gate > 0 and i % t <= i // t % t), (name, case["key"], i)
            last = Tensor([x for at in range(0, len(q.values), t * q.shape[3])
                           for x in q.values[at + (t - 1) * q.shape[3]:at + t * q.shape[3]]], q.shape[:2] + (1, q.shape[3]))
            alone, _ = attention(module, last, k, v, None)
            alone, d = alone.transpose(1, 2), q.shape[3]
            for head in range(q.shape[0] * q.shape[1]):
                assert alone.values[head * d:(head + 1) * d] == out.values[(head * t + t - 1) * d:(head * t + t) * d]
            # Dividing by the layer's number is halving the queries of layer 1.
            module.scale_attn_by_inverse_layer_idx, module.layer_idx = True, 1
            divided = attention(module, q, k, v, None)[0].values
            module.scale_attn_by_inverse_layer_idx = False
            assert divided == attention(module, q / 2, k, v, None)[0].values
            # Newer versions hand the scale over; other families have no such flags.
            plain = SimpleNamespace(config=module.config)
            assert attention(plain, q, k, v, None, scaling=d ** -0.5)[0].values == attention(module, q, k, v, None)[0].values
            # All heads share the first one's keys and values.
            size = t * d
            firsts = [Tensor([y for b in range(x.shape[0]) for y in x.values[b * x.shape[1] * size:][:size]],
                             (x.shape[0], 1, t, d)) for x in (k, v)]
            copies = [Tensor([y for b in range(x.shape[0]) for y in x.values[b * size:][:size] * k.shape[1]], k.shape)
                      for x in firsts]
            assert attention(module, q, *firsts, None)[0].values == attention(module, q, *copies, None)[0].values
            checked += 1
    assert checked >= 4, checked


def to_transformer_lens(gpt2, heads):
    """The other way round, element by element from the definition: column h*D + d of c_attn is head h's d."""
    state = {"embed.W_E": gpt2["wte.weight"], "pos_embed.W_pos": gpt2["wpe.weight"],
             "ln_final.w": gpt2["ln_f.weight"], "ln_final.b": gpt2["ln_f.bias"],
             "unembed.W_U": gpt2["wte.weight"].permute(1, 0), "unembed.b_U": Torch.zeros(gpt2["wte.weight"].shape[0])}
    width = gpt2["wte.weight"].shape[1]
    d = width // heads
    for layer in range(2):
        of, to = f"h.{layer}.", f"blocks.{layer}."
        for norm in "12":
            state[f"{to}ln{norm}.w"], state[f"{to}ln{norm}.b"] = gpt2[f"{of}ln_{norm}.weight"], gpt2[f"{of}ln_{norm}.bias"]
        w, b = gpt2[of + "attn.c_attn.weight"].values, gpt2[of + "attn.c_attn.bias"].values
        for part, x in enumerate("QKV"):
            state[f"{to}attn.W_{x}"] = Tensor([w[c * 3 * width + part * width + h * d + i] for h in range(heads)
                                               for c in range(width) for i in range(d)], (heads, width, d))
            state[f"{to}attn.b_{x}"] = Tensor(b[part * width:(part + 1) * width], (heads, d))
        state[to + "attn.W_O"] = Tensor(gpt2[of + "attn.c_proj.weight"].values, (heads, d, width))
        state[to + "attn.b_O"] = gpt2[of + "attn.c_proj.bias"]
        for ours, theirs in (("in", "c_fc"), ("out", "c_proj")):
            state[f"{to}mlp.W_{ours}"], state[f"{to}mlp.b_{ours}"] = (
                gpt2[f"{of}mlp.{theirs}.weight"], gpt2[f"{of}mlp.{theirs}.bias"])
    return state


def to_nano_gpt(gpt2):
    state = {"lm_head.weight": gpt2["wte.weight"]}
    for name, tensor in gpt2.items():
        matrix = ".c_" in name and name.endswith(".weight")
        state["transformer." + name] = tensor.permute(1, 0) if matrix else tensor
    return state


def check_conversion(code, data):
    names, _ = run_block(code)
    stored = read_safetensors(data / "golden" / "models" / "a" / "model.safetensors")
    gpt2 = {name.removeprefix("transformer."): tensor for name, tensor in stored.items()}
    lens, nano = to_transformer_lens(gpt2, heads=2), to_nano_gpt(gpt2)
    wrapped = {"module._orig_mod." + name: tensor for name, tensor in nano.items()}
    with_mask = {**stored, "transformer.h.0.attn.bias": Tensor([1.0], (1, 1))}
    for state in (lens, nano, wrapped, stored, with_mask):
        tensors, tied = names["convert"](state)
        assert tied
        assert tensors.keys() == stored.keys(), tensors.keys() ^ stored.keys()
        for name, tensor in stored.items():
            assert tensors[name].shape == tensor.shape, name
            assert tensors[name].values == tensor.values, name
    # Without biases they are zero; an output matrix of its own stays.
    bare = {name: tensor for name, tensor in nano.items() if not name.endswith(".bias")}
    bare["lm_head.weight"] = nano["lm_head.weight"] + 1.0
    tensors, tied = names["convert"](bare)
    assert not tied and tensors.keys() == stored.keys() | {"lm_head.weight"}
    for name in (name for name in stored if name.endswith(".bias")):
        assert tensors[name].shape == stored[name].shape and not any(tensors[name].values), name
    try:
        names["convert"]({**lens, "unembed.b_U": lens["unembed.b_U"] + 1.0})
    except SystemExit:
        return
    raise AssertionError("a bias of the output matrix must be refused")


def main(page, data):
    attention, conversion = blocks_of(page)
    check_attention(attention, Path(data))
    check_conversion(conversion, Path(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
