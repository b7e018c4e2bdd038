# SPDX-License-Identifier: MIT
"""The work of `clearhead bench --task` in PyTorch and transformers, as a server on standard input.

A line "about" answers with versions, "run TASK N" with the seconds of N runs after one warm-up,
each answer one line of JSON. The model is made once for a task, so start-up does not count.
scripts/bench-peers starts it. 124M parameters, fp32, no dropout.
"""
import gc
import json
import os
import sys
import time

import torch
import torch.nn.functional as F
import transformers
from transformers import AttentionInterface, GPT2Config, GPT2LMHeadModel

VOCABULARY = 50257
GATE_BIAS = 2.0  # as post-training starts
PENALTY_WEIGHT = 0.1


def gated_attention(query, key, value, bias):
    """Sampled gates with a straight-through gradient; the mean gate probability beside the output.

    weight = softmax(s) * 1[s + bias + noise > 0], logistic noise, over all causal keys.
    """
    length = query.shape[-2]
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    scores = scores.masked_fill(later, float("-inf"))
    logits = scores + bias
    noisy = logits + torch.rand_like(scores).clamp_(1e-7, 1 - 1e-6).logit_()
    soft = torch.sigmoid(noisy)
    gate = (noisy > 0).to(soft.dtype) + soft - soft.detach()
    output = (scores.softmax(-1) * gate) @ value
    pairs = scores.shape[0] * scores.shape[1] * length * (length + 1) / 2
    return output, torch.sigmoid(logits).sum() / pairs


penalties = []  # of the layers of the pass at hand


def gated_layer(module, query, key, value, attention_mask, **kwargs):
    output, penalty = gated_attention(query, key, value, GATE_BIAS)
    penalties.append(penalty)
    return output.transpose(1, 2), None


AttentionInterface.register("gated", gated_layer)


def make_model(attention):
    config = GPT2Config(
        attn_implementation=attention,
        # GPT-2's own function, in one kernel instead of eight.
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    return GPT2LMHeadModel(config)


def step(context, sparse):
    model = make_model("gated" if sparse else "sdpa").train()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=1e-4,
        betas=(0.9, 0.95),
        fused=True,
    )
    tokens = torch.randint(0, VOCABULARY, (4, context + 1))

    def run():
        penalties.clear()
        logits = model(tokens[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        if sparse:
            loss = loss + PENALTY_WEIGHT * torch.stack(penalties).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return run


def attention(gated):
    query, key, value = (torch.randn(4, 12, 1024, 64, requires_grad=True) for _ in range(3))
    gradient = torch.randn(4, 12, 1024, 64)

    def run():
        query.grad = key.grad = value.grad = None
        if gated:
            output, penalty = gated_attention(query, key, value, 0.0)
            torch.autograd.backward([output, penalty], [gradient, torch.ones(())])
        else:
            F.scaled_dot_product_attention(query, key, value, is_causal=True).backward(gradient)

    return run


def forward(length):
    model = make_model("eager").eval()  # the only one that gives out its maps
    tokens = torch.randint(0, VOCABULARY, (1, length))

    @torch.inference_mode()
    def run():
        model(tokens, output_attentions=True, use_cache=False)

    return run


def decoding():
    model = make_model("sdpa").eval()
    tokens = torch.randint(0, VOCABULARY, (1, 8))

    @torch.inference_mode()
    def run():
        ids = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            min_new_tokens=32,
            max_new_tokens=32,
            do_sample=False,
            pad_token_id=0,
        )
        assert ids.shape[1] == 40

    return run


TASKS = {
    "dense-step-256": lambda: step(256, sparse=False),
    "sparse-step-256": lambda: step(256, sparse=True),
    "sparse-step-512": lambda: step(512, sparse=True),
    "dense-attention": lambda: attention(gated=False),
    "gated-attention": lambda: attention(gated=True),
    "forward-64": lambda: forward(64),
    "forward-1024": lambda: forward(1024),
    "decoding": decoding,
}


def seconds_of(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def serve(lines, answer):
    name, run = None, None
    for line in lines:
        words = line.split()
        if words == ["about"]:
            answer({
                "program": f"PyTorch {torch.__version__}, transformers {transformers.__version__}",
                "threads": torch.get_num_threads(),
            })
        elif len(words) == 3 and words[0] == "run" and words[1] in TASKS:
            if words[1] != name:
                run = None  # first, so that two models are never there together
                gc.collect()
                name, run = words[1], TASKS[words[1]]()
            run()
            answer({"seconds": [seconds_of(run) for _ in range(int(words[2]))]})
        else:
            answer({"error": f"not understood: {line.strip()!r}"})


def main():
    # What a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    serve(sys.stdin, lambda value: print(json.dumps(value), file=answers, flush=True))


main()
