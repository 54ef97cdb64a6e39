#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loss and gradients of two tiny models, computed by PyTorch in float64: the fixtures gpt.txt and
llama.txt beside this file, against which tests/parity compares plait's own models.

    python3 tests/oracle/torch_oracle.py            write the fixtures anew
    python3 tests/oracle/torch_oracle.py --check    compute again and compare with what is there

Nothing of plait is used here: normalisation, attention and loss are PyTorch's own functions.

Numbers that go in
------------------
Nothing random is stored. Every number is a pure function of (k, i), exact in double precision:

    x = (i + 1 + 0x9E3779B9 * (k + 1)) mod 2^32
    x ^= x >> 16;  x = x * 0x85EBCA6B mod 2^32;  x ^= x >> 13;  x = x * 0xC2B2AE35 mod 2^32
    x ^= x >> 16                          (the finalizer of MurmurHash3, Appleby 2011)
    unit(k, i) = x / 2^31 - 1             in [-1, 1)

Element i (row-major, weights are (out, in)) of the parameter with number k is
center + scale * unit(k, i). With row = sample * seq + position, the token of a row is
x(1000, row) mod vocab; its target is x(1001, row) mod vocab, and -1 (not counted) where
row mod 7 == 3.

Numbers that come out
---------------------
Gradients are those of the mean loss: the sum of -log p(target) over counted rows, divided by how
many are counted.

File format
-----------
Lines of words separated by single spaces; "#" begins a comment line.

    model NAME layers N hidden N heads N kv_heads N head_dim N ffn N vocab N seq N batch N
    numbers norm_eps R rope_theta R          (rope_theta 0: learned positions)
    loss sum R count N mean R
    param NAME k N shape ROWS COLS center R scale R l2 R sum R samples N I R I R ...

`l2` and `sum` are over the whole gradient; each of the N samples is an index into it and its value
there. COLS is 1 for vectors. R is a decimal that reads back to the same double. The gradient of
the k projection's bias is zero in exact arithmetic (it shifts all scores of a query alike); what is
stored is rounding noise, so compare with an absolute bound too.

The models
----------
gpt: token and learned position embeddings; blocks x += attn(norm(x)), x += mlp(norm(x)); LayerNorm
with bias; GELU in the tanh form; biases on all GEMMs but the head's; the head is the token
embedding. llama: RMSNorm; rotary positions, element i of a head paired with i + head_dim / 2;
queries h of kv head h / (heads / kv_heads); down(silu(gate(x)) * up(x)); no biases; own head.
"""
import argparse
import pathlib
import sys

import torch
import torch.nn.functional as F

BATCH, SEQ, VOCAB, HIDDEN, LAYERS, HEADS, HEAD_DIM = 3, 32, 257, 64, 2, 4, 16
EPS, THETA, SAMPLES = 1e-5, 10000.0, 8
TOKENS_K, TARGETS_K = 1000, 1001


class Shape:
    def __init__(self, name, kv_heads, ffn):
        self.name, self.kv_heads, self.ffn = name, kv_heads, ffn
        self.gpt = name == "gpt"


MODELS = (Shape("gpt", 4, 256), Shape("llama", 2, 176))


def mix(k, n):
    """x(k, i) for i = 0..n-1, as int64."""
    mask = 0xFFFFFFFF
    x = (torch.arange(n, dtype=torch.int64) + 1 + 0x9E3779B9 * (k + 1)) & mask
    x ^= x >> 16
    x = times(x, 0x85EBCA6B)
    x ^= x >> 13
    x = times(x, 0xC2B2AE35)
    return x ^ (x >> 16)


def times(x, factor):
    """x * factor mod 2^32 without leaving signed 64 bits: halves of 16 bits."""
    low, high = factor & 0xFFFF, factor >> 16
    return (x * low + (((x * high) & 0xFFFF) << 16)) & 0xFFFFFFFF


class Parameters:
    """Parameters by plait's names, numbered in the order of making."""

    def __init__(self):
        self.tensors, self.rows = {}, []

    def make(self, name, shape, center, scale):
        k = len(self.rows)
        count = shape[0] * shape[1]
        unit = mix(k, count).to(torch.float64) / 2.0**31 - 1.0
        tensor = (center + scale * unit).reshape(shape if shape[1] > 1 else shape[:1])
        self.tensors[name] = tensor.requires_grad_()
        self.rows.append((name, k, shape, center, scale))

    def matrix(self, name, rows, cols):
        self.make(name, (rows, cols), 0.0, 0.25)

    def vector(self, name, n, center):
        self.make(name, (n, 1), center, 0.1)

    def norm(self, name, bias):
        self.vector(name + ".weight", HIDDEN, 1.0)
        if bias:
            self.vector(name + ".bias", HIDDEN, 0.0)

    def linear(self, name, out, into, bias):
        self.matrix(name + ".weight", out, into)
        if bias:
            self.vector(name + ".bias", out, 0.0)

    def get(self, name):
        return self.tensors.get(name)


def make_parameters(shape):
    p = Parameters()
    p.matrix("embed.tokens", VOCAB, HIDDEN)
    if shape.gpt:
        p.matrix("embed.positions", SEQ, HIDDEN)
    for layer in range(LAYERS):
        at = "layers.%d." % layer
        p.norm(at + "attn.norm", shape.gpt)
        p.linear(at + "attn.q", HEADS * HEAD_DIM, HIDDEN, shape.gpt)
        p.linear(at + "attn.k", shape.kv_heads * HEAD_DIM, HIDDEN, shape.gpt)
        p.linear(at + "attn.v", shape.kv_heads * HEAD_DIM, HIDDEN, shape.gpt)
        p.linear(at + "attn.o", HIDDEN, HEADS * HEAD_DIM, shape.gpt)
        p.norm(at + "mlp.norm", shape.gpt)
        if not shape.gpt:
            p.linear(at + "mlp.gate", shape.ffn, HIDDEN, False)
        p.linear(at + "mlp.up", shape.ffn, HIDDEN, shape.gpt)
        p.linear(at + "mlp.down", HIDDEN, shape.ffn, shape.gpt)
    p.norm("head.norm", shape.gpt)
    if not shape.gpt:
        p.matrix("head.weight", VOCAB, HIDDEN)
    return p


def linear(p, name, x):
    return F.linear(x, p.get(name + ".weight"), p.get(name + ".bias"))


def normed(p, name, x):
    weight, bias = p.get(name + ".weight"), p.get(name + ".bias")
    if bias is not None:
        return F.layer_norm(x, (HIDDEN,), weight, bias, EPS)
    return F.rms_norm(x, (HIDDEN,), weight, EPS)


def rotate(x):
    """(batch, heads, seq, head_dim): turn pair (i, i + half) by position * theta^(-i / half)."""
    half = HEAD_DIM // 2
    rate = THETA ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.outer(torch.arange(SEQ, dtype=torch.float64), rate)
    first, second = x[..., :half], x[..., half:]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def attention(p, at, x, shape):
    def heads(name, count):
        return linear(p, at + name, x).view(BATCH, SEQ, count, HEAD_DIM).transpose(1, 2)
    q, k, v = heads("q", HEADS), heads("k", shape.kv_heads), heads("v", shape.kv_heads)
    if not shape.gpt:
        q, k = rotate(q), rotate(k)
    share = HEADS // shape.kv_heads
    k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return linear(p, at + "o", o.transpose(1, 2).reshape(BATCH, SEQ, HEADS * HEAD_DIM))


def mlp(p, at, x, shape):
    if shape.gpt:
        return linear(p, at + "down", F.gelu(linear(p, at + "up", x), approximate="tanh"))
    return linear(p, at + "down", F.silu(linear(p, at + "gate", x)) * linear(p, at + "up", x))


def logits(p, tokens, shape):
    x = F.embedding(tokens, p.get("embed.tokens"))
    if shape.gpt:
        x = x + p.get("embed.positions")
    for layer in range(LAYERS):
        at = "layers.%d." % layer
        x = x + attention(p, at + "attn.", normed(p, at + "attn.norm", x), shape)
        x = x + mlp(p, at + "mlp.", normed(p, at + "mlp.norm", x), shape)
    head = p.get("embed.tokens" if shape.gpt else "head.weight")
    return F.linear(normed(p, "head.norm", x), head)


def sample_places(gradient):
    """Indices spread evenly over the entries that are not zero (rows of tokens that do not occur
    are)."""
    places = gradient.nonzero().flatten()
    chosen = torch.linspace(0, len(places) - 1, SAMPLES, dtype=torch.float64).round().long()
    return places[chosen].tolist()


def fixture(shape):
    p = make_parameters(shape)
    rows = torch.arange(BATCH * SEQ)
    tokens = (mix(TOKENS_K, BATCH * SEQ) % VOCAB).view(BATCH, SEQ)
    targets = mix(TARGETS_K, BATCH * SEQ) % VOCAB
    targets[rows % 7 == 3] = -1
    out = logits(p, tokens, shape).view(BATCH * SEQ, VOCAB)
    total = F.cross_entropy(out, targets, ignore_index=-1, reduction="sum")
    count = int((targets >= 0).sum())
    (total / count).backward()

    lines = ["# Made by tests/oracle/torch_oracle.py, which describes the format.",
             "model %s layers %d hidden %d heads %d kv_heads %d head_dim %d ffn %d vocab %d seq %d "
             "batch %d" % (shape.name, LAYERS, HIDDEN, HEADS, shape.kv_heads, HEAD_DIM, shape.ffn,
                           VOCAB, SEQ, BATCH),
             "numbers norm_eps %r rope_theta %r" % (EPS, 0.0 if shape.gpt else THETA),
             "loss sum %r count %d mean %r" % (total.item(), count, total.item() / count)]
    for name, k, (height, width), center, scale in p.rows:
        gradient = p.tensors[name].grad.flatten()
        samples = ["%d %r" % (i, gradient[i].item()) for i in sample_places(gradient)]
        lines.append("param %s k %d shape %d %d center %r scale %r l2 %r sum %r samples %d %s"
                     % (name, k, height, width, center, scale, gradient.norm().item(),
                        gradient.sum().item(), len(samples), " ".join(samples)))
    return "\n".join(lines) + "\n"


def same(a, b):
    """Equal word for word, numbers within what another processor's rounding may change."""
    words_a, words_b = a.split(), b.split()
    if len(words_a) != len(words_b):
        return False
    for x, y in zip(words_a, words_b):
        try:
            if abs(float(x) - float(y)) > 1e-12 + 1e-10 * abs(float(y)):
                return False
        except ValueError:
            if x != y:
                return False
    return True


def main():
    parser = argparse.ArgumentParser(description="fixtures of two tiny models")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    bad = 0
    for shape in MODELS:
        path = pathlib.Path(__file__).resolve().parent / (shape.name + ".txt")
        made = fixture(shape)
        if args.check:
            ok = path.is_file() and same(made, path.read_text())
            bad += not ok
            print("%s %s" % ("ok  " if ok else "FAIL", path.name))
        else:
            path.write_text(made)
            print("wrote %s, %d bytes" % (path.name, len(made)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
