# SPDX-License-Identifier: MIT
"""Reads a transcoder by the layout that docs/features.md describes, with the interpreter alone, and runs it.

    read_transcoder.py FOLDER < [[x of layer 0], [x of layer 1], ...]

prints {"config": {...}, "features": [[layer, feature, activation], ...], "reconstruction": [[...], ...]} for one position.
"""
import json
import pathlib
import struct
import sys


def numbers(dtype, data):
    if dtype == "F32":
        return struct.unpack(f"<{len(data) // 4}f", data)
    if dtype == "F16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    assert dtype == "BF16", dtype  # the upper half of a float
    halves = struct.unpack(f"<{len(data) // 2}H", data)
    return struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(h << 16 for h in halves)))


def tensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    result = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        result[name] = (entry["shape"], numbers(entry["dtype"], data[8 + length + begin : 8 + length + end]))
    return result


def rows(tensor):
    (count, *inner), values = tensor
    width = len(values) // count
    return [values[i * width : (i + 1) * width] for i in range(count)]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def main():
    folder = pathlib.Path(sys.argv[1])
    config = dict(line.split(": ", 1) for line in (folder / "config.yaml").read_text().splitlines())
    config = {key: value.strip('"') for key, value in config.items()}
    inputs = json.load(sys.stdin)
    cross = config["model_kind"] == "cross_layer_transcoder"
    features, outputs = [], [[0.0] * len(x) for x in inputs]
    for layer, x in enumerate(inputs):
        if cross:
            encoder = tensors(folder / f"W_enc_{layer}.safetensors")
            file = {name.removesuffix(f"_{layer}"): tensor for name, tensor in encoder.items()}
            file["W_dec"] = tensors(folder / f"W_dec_{layer}.safetensors")[f"W_dec_{layer}"]
        else:
            file = tensors(folder / f"layer_{layer}.safetensors")
            file["threshold"] = file.get("activation_function.threshold")
        pre = [dot(x, row) + bias for row, bias in zip(rows(file["W_enc"]), file["b_enc"][1])]
        if config.get("activation") == "topk":
            fires = sorted(range(len(pre)), key=lambda f: (-pre[f], f))[: int(config["k"])]
        else:
            threshold = file["threshold"][1] if file.get("threshold") else [0.0] * len(pre)
            fires = [f for f in range(len(pre)) if pre[f] > threshold[f]]
        decoder = rows(file["W_dec"])  # [targets of the feature, one behind the other]
        for i, bias in enumerate(file["b_dec"][1]):
            outputs[layer][i] += bias
        if "W_skip" in file:
            for i, row in enumerate(rows(file["W_skip"])):
                outputs[layer][i] += dot(x, row)
        for f in sorted(fires):
            features.append([layer, f, pre[f]])
            for i, weight in enumerate(decoder[f]):
                outputs[layer + i // len(x)][i % len(x)] += pre[f] * weight
    json.dump({"config": config, "features": features, "reconstruction": outputs}, sys.stdout)


main()
