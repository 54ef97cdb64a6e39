#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of tests/parity/test_ref.c: kernels as PyTorch computes them, in f64.

Element i of input number s is sin(0.7 i + s). A result is put down as one number, the sum of its
elements times cos(0.3 i + 1), in which every element counts.

    python3 tests/oracle/kernels_oracle.py        (made with PyTorch 2.6)
"""
import math

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def wave(s, *shape):
    n = math.prod(shape)
    return torch.sin(0.7 * torch.arange(n, dtype=torch.float64) + s).reshape(shape)


def put(name, x):
    x = x.detach().reshape(-1)
    weight = torch.cos(0.3 * torch.arange(x.numel(), dtype=torch.float64) + 1)
    print('    {"%s", %.17g},' % (name, (x * weight).sum().item()))


def rotate(x, positions, d):
    """Half-split rotary embedding as in Hugging Face Llama, base 10000."""
    inv = 1.0 / (10000 ** (torch.arange(0, d, 2) / d))
    angle = torch.outer(positions, inv)
    cos = torch.cat((angle, angle), -1).cos()
    sin = torch.cat((angle, angle), -1).sin()
    half = torch.cat((-x[..., d // 2:], x[..., :d // 2]), -1)
    return x * cos + half * sin


def main():
    put("gemm nn", wave(1, 5, 7) @ wave(2, 7, 3))
    put("gemm nt", wave(1, 5, 7) @ wave(2, 3, 7).T)
    put("gemm tn", wave(1, 7, 5).T @ wave(2, 7, 3))
    put("gemm tt", wave(1, 7, 5).T @ wave(2, 3, 7).T)
    pre = (wave(1, 5, 7) @ wave(2, 7, 3) + wave(3, 3)).requires_grad_()
    out = F.gelu(pre, approximate="tanh")
    put("gelu", out)
    out.backward(wave(4, 5, 2) @ wave(5, 2, 3))
    put("dgelu", pre.grad)
    put("layer norm", F.layer_norm(wave(1, 4, 9), (9,), wave(2, 9), wave(3, 9), 1e-5))
    put("rms norm", F.rms_norm(wave(1, 4, 9), (9,), wave(2, 9), 1e-5))
    # attention: 2 sequences, 6 tokens, 4 heads on 2, of 5; and the last 4 queries alone
    q, k, v = wave(1, 2, 6, 4, 5), wave(2, 2, 6, 2, 5), wave(3, 2, 6, 2, 5)
    heads = [t.transpose(1, 2) for t in (q, k, v)]
    o = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True).transpose(1, 2)
    put("attention", o)
    put("attention, last queries", o[:, 2:])
    score = heads[0] @ heads[1].repeat_interleave(2, 1).transpose(2, 3) / math.sqrt(5)
    score = score.masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)
    put("log of the sum", score.logsumexp(-1).transpose(1, 2))
    put("rope", rotate(wave(1, 2, 3, 8), torch.arange(4, 7), 8))
    gate, up = wave(1, 4, 2, 3).unbind(1)
    put("swiglu", F.silu(gate) * up)
    logits, target = wave(1, 4, 6).requires_grad_(), torch.tensor([0, 5, -1, 2])
    loss = F.cross_entropy(logits, target, ignore_index=-1, reduction="none")
    put("cross entropy", loss)
    loss.sum().backward()
    put("cross entropy, gradient", logits.grad)
    w = wave(1, 8).requires_grad_()
    adam = torch.optim.AdamW([w], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for s in (2, 3, 4):
        w.grad = wave(s, 8) * 0.5
        adam.step()
    put("adamw, three steps", w)


if __name__ == "__main__":
    main()
