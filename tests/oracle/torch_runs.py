#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole training runs as PyTorch makes them in float64: the fixture runs.txt beside this file, that
tests/dist/test_oracle_runs.c holds against runs of plait with the same keys.

    python3 tests/oracle/torch_runs.py            write the fixture anew (made with PyTorch 2.8)
    python3 tests/oracle/torch_runs.py --check    compute again and compare with what is there

Every key that changes a number has at least two values among the runs. Nothing of plait is used:
what it draws (first weights, order of samples, masks of dropout) is written here once more from its
documentation (src/base/num.h, src/data/data_permute.c, src/device/device.h), the rest is PyTorch's:
layer_norm, rms_norm, softmax, gelu, silu, cross_entropy, autograd, AdamW. The names and shapes on
disk are those of transformers' GPT2LMHeadModel and LlamaForCausalLM, written out in `on_disk`.

Texts: byte i of text k is 32 + x(k, i) mod 95, x as in torch_oracle.py; prepared by bytes, so that
token 256 ends them. A run trains on text 1 (75 bytes) and validates on text 2 (46 bytes).

File format, words separated by single spaces, "#" begins a comment:

    run NAME
    set KEY=VALUE ...
    step N loss R norm R lr R tokens N     (norm: of the mean gradient before clipping)
    valid N loss R                         (after step N, without dropout)
    tensor NAME ND ROWS COLS l2 R wave R   (at the end; wave: sum of element i times cos(0.3 i + 1))
"""
import argparse
import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

from torch_oracle import mix, same

TRAIN, VALID = (1, 75), (2, 46)
EMBED, ATTN, MLP = 0, 1, 2      # parts, in the order of a model
PROBS, OUTPUT = 0, 1            # places of dropout in a part

# What src/config/options.c says when a key is not set; the runs set what they change.
DEFAULTS = {
    "model.kind": "gpt", "model.layers": 2, "model.hidden": 12, "model.heads": 2,
    "model.kv_heads": 0, "model.head_dim": 0, "model.ffn": 0, "model.vocab": 257, "model.seq": 8,
    "model.tied": "true", "model.dropout": 0.0, "model.norm_eps": 1e-5,
    "model.rope_theta": 10000.0, "model.init_std": 0.02,
    "train.steps": 4, "train.batch": 4, "train.seed": 1, "train.valid_every": 0,
    "train.valid_batches": 0, "parallel.microbatch": 1,
    "optim.lr": 3e-4, "optim.lr_min": 0.0, "optim.beta1": 0.9, "optim.beta2": 0.95,
    "optim.eps": 1e-8, "optim.decay": 0.1, "optim.clip": 1.0, "optim.warmup": 0,
    "optim.schedule": "cosine", "optim.decay_steps": 0,
}
BASE = ["model.layers=2", "model.hidden=12", "model.heads=2", "model.vocab=257", "model.seq=8",
        "train.steps=4", "train.batch=4"]  # not the defaults, and too large there

RUNS = {
    "gpt": "",
    "gpt-shape": "model.layers=3 model.hidden=16 model.heads=4 model.ffn=20 model.vocab=261 "
                 "model.seq=6 model.tied=false model.init_std=0.1 train.steps=3 train.batch=5 "
                 "train.seed=8589934597 optim.lr=0.02 parallel.microbatch=2",
    "gpt-dropout": "model.dropout=0.3 model.init_std=0.2 train.seed=7 optim.lr=0.01 "
                   "optim.warmup=2 train.valid_every=2 parallel.microbatch=3",
    "gpt-norm": "model.norm_eps=0.03 model.init_std=0.1 optim.lr=0.01 optim.clip=0",
    "gpt-optim": "model.init_std=0.2 optim.lr=0.02 optim.beta1=0.7 optim.beta2=0.8 optim.eps=0.01 "
                 "optim.decay=0.7 optim.clip=0.4 optim.schedule=linear optim.lr_min=0.004 "
                 "train.steps=5",
    "llama": "model.kind=llama",
    "llama-shape": "model.kind=llama model.heads=4 model.kv_heads=2 model.head_dim=6 model.ffn=20 "
                   "model.tied=false model.init_std=0.3 optim.lr=0.01 optim.schedule=constant "
                   "optim.warmup=3",
    "llama-rope": "model.kind=llama model.rope_theta=3 model.init_std=0.5 optim.lr=0.01 "
                  "optim.lr_min=0.002 optim.clip=1000 train.valid_every=1 train.valid_batches=1",
    "llama-dropout": "model.kind=llama model.dropout=0.15 model.heads=4 model.kv_heads=2 "
                     "model.hidden=16 model.norm_eps=0.001 model.init_std=0.3 train.seed=3 "
                     "optim.lr=0.02 optim.schedule=wsd optim.decay_steps=3 optim.lr_min=0.005 "
                     "optim.warmup=1 train.steps=6",
    "llama-wsd": "model.kind=llama model.dropout=0.6 model.init_std=0.3 optim.lr=0.02 "
                 "optim.schedule=wsd optim.decay_steps=2 optim.decay=0 train.steps=5",
}


# ---- what plait draws ----

def philox(c0, c1, c2, c3, key):
    """Philox4x32-10 of counters (arrays of equal length) under a 64-bit key: four arrays."""
    mask = np.uint64(0xFFFFFFFF)
    c = [np.broadcast_to(np.asarray(x, np.uint64), np.shape(c0)).copy() for x in (c0, c1, c2, c3)]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & mask,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def name_hash(name):
    """FNV-1a, 64 bits."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def normals(seed, name, n):
    """Box-Muller: draw q gives normals 4q to 4q + 3."""
    q = np.arange((n + 3) // 4, dtype=np.uint64)
    stream = name_hash(name)
    words = philox(q, q >> np.uint64(32), stream & 0xFFFFFFFF, stream >> 32, seed)
    u = [(w.astype(np.float64) + 0.5) / 2.0**32 for w in words]
    pairs = []
    for a, b in ((u[0], u[1]), (u[2], u[3])):
        radius, angle = np.sqrt(-2 * np.log(a)), 2 * math.pi * b
        pairs += [radius * np.cos(angle), radius * np.sin(angle)]
    return torch.from_numpy(np.stack(pairs, 1).reshape(-1)[:n])


def kept(o, stream, step, index):
    """The mask of dropout at global indices, with its scale."""
    p = o["model.dropout"]
    quad = (index // 4).astype(np.uint64)
    words = philox(quad, quad >> np.uint64(32), stream, step, o["train.seed"])
    word = np.choose(index % 4, words)
    return torch.from_numpy((word >= int(p * 2**32)) / (1 - p))


def permuted(seed, epoch, samples, i):
    """Eight rounds of Feistel over 2h bits, walked until the value is below `samples`."""
    key, half = seed ^ name_hash("data.permute"), 3
    while 4**half < samples:
        half += 1
    mask = 2**half - 1
    while True:
        left, right = i >> half, i & mask
        for r in range(8):
            draw = philox(np.array([right]), r, epoch & 0xFFFFFFFF, epoch >> 32, key)[0]
            left, right = right, left ^ (int(draw[0]) & mask)
        i = left << half | right
        if i < samples:
            return i


# ---- data ----

def tokens_of(text):
    k, n = text
    return [32 + int(x) % 95 for x in mix(k, n)] + [256]


def sample(tokens, t, i):
    return tokens[i * t:i * t + t + 1]


def rows(samples):
    """Inputs and targets of samples of t + 1 tokens."""
    whole = torch.tensor(samples)
    return whole[:, :-1], whole[:, 1:]


# ---- the model ----

class Model:
    def __init__(self, o):
        self.o, self.gpt = o, o["model.kind"] == "gpt"
        self.layers, self.c, self.h = (o["model." + k] for k in ("layers", "hidden", "heads"))
        self.kv = o["model.kv_heads"] or self.h
        self.d = o["model.head_dim"] or self.c // self.h
        gated = -(-(-(-8 * self.c // 3)) // 32) * 32  # 8/3 of hidden, up to a multiple of 32
        self.f = o["model.ffn"] or (4 * self.c if self.gpt else gated)
        self.v, self.t, self.tied = o["model.vocab"], o["model.seq"], o["model.tied"] == "true"
        self.p, self.decays = {}, set()
        self.make()

    def matrix(self, name, out, into, part=1.0):
        std = self.o["model.init_std"] * part
        w = normals(self.o["train.seed"], name, out * into).reshape(out, into) * std
        self.p[name] = w.clone().requires_grad_()
        self.decays.add(name)

    def vector(self, name, n, value=0.0):
        self.p[name] = torch.full((n,), value, requires_grad=True)

    def make(self):
        """Matrices are normal, those that write to the residual stream with std / sqrt(2 layers);
        norms begin as 1, biases as 0. Matrices decay, and nothing else."""
        less = 1 / math.sqrt(2 * self.layers)
        self.matrix("embed.tokens", self.v, self.c)
        if self.gpt:
            self.matrix("embed.positions", self.t, self.c)
        for i in range(self.layers):
            a, m = "layers.%d.attn." % i, "layers.%d.mlp." % i
            self.vector(a + "norm.weight", self.c, 1.0)
            self.matrix(a + "q.weight", self.h * self.d, self.c)
            self.matrix(a + "k.weight", self.kv * self.d, self.c)
            self.matrix(a + "v.weight", self.kv * self.d, self.c)
            self.matrix(a + "o.weight", self.c, self.h * self.d, less)
            self.vector(m + "norm.weight", self.c, 1.0)
            if not self.gpt:
                self.matrix(m + "gate.weight", self.f, self.c)
            self.matrix(m + "up.weight", self.f, self.c)
            self.matrix(m + "down.weight", self.c, self.f, less)
            if self.gpt:
                for name, n in ((a + "norm", self.c), (a + "q", self.h * self.d),
                                (a + "k", self.kv * self.d), (a + "v", self.kv * self.d),
                                (a + "o", self.c), (m + "norm", self.c), (m + "up", self.f),
                                (m + "down", self.c)):
                    self.vector(name + ".bias", n)
        self.vector("head.norm.weight", self.c, 1.0)
        if self.gpt:
            self.vector("head.norm.bias", self.c)
        if not self.tied:
            self.matrix("head.weight", self.v, self.c)

    def linear(self, name, x):
        return F.linear(x, self.p[name + ".weight"], self.p.get(name + ".bias"))

    def norm(self, name, x):
        w, b, eps = self.p[name + ".weight"], self.p.get(name + ".bias"), self.o["model.norm_eps"]
        if self.gpt:
            return F.layer_norm(x, (self.c,), w, b, eps)
        return F.rms_norm(x, (self.c,), w, eps)

    def dropped(self, x, block, part, site, step):
        """x (samples, ..., last): element by element, in the order of rows of the whole step."""
        if step is None or self.o["model.dropout"] == 0:
            return x
        index = np.arange(x.numel()).reshape(x.shape)
        return x * kept(self.o, (block * 4 + part) * 2 + site, step, index)

    def rotated(self, x):
        half = self.d // 2
        rate = self.o["model.rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), rate)
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)

    def attention(self, i, x, step):
        at, (n, t, _) = "layers.%d.attn." % i, x.shape
        q = self.linear(at + "q", x).view(n, t, self.h, self.d).transpose(1, 2)
        k = self.linear(at + "k", x).view(n, t, self.kv, self.d).transpose(1, 2)
        v = self.linear(at + "v", x).view(n, t, self.kv, self.d).transpose(1, 2)
        if not self.gpt:
            q, k = self.rotated(q), self.rotated(k)
        k, v = (y.repeat_interleave(self.h // self.kv, 1) for y in (k, v))
        score = q @ k.transpose(2, 3) / math.sqrt(self.d)
        score = score.masked_fill(torch.ones(t, t).triu(1).bool(), -math.inf)
        probs = score.softmax(-1).transpose(1, 2)  # (n, t, head, key): as masks are indexed
        probs = self.dropped(probs, i, ATTN, PROBS, step).transpose(1, 2)
        return self.linear(at + "o", (probs @ v).transpose(1, 2).reshape(n, t, self.h * self.d))

    def mlp(self, i, x):
        at = "layers.%d.mlp." % i
        if self.gpt:
            return self.linear(at + "down", F.gelu(self.linear(at + "up", x), approximate="tanh"))
        gate = F.silu(self.linear(at + "gate", x))
        return self.linear(at + "down", gate * self.linear(at + "up", x))

    def loss(self, samples, step):
        """Mean loss a token; step None: without dropout."""
        tokens, targets = rows(samples)
        x = F.embedding(tokens, self.p["embed.tokens"])
        if self.gpt:
            x = x + self.p["embed.positions"]
        x = self.dropped(x, self.layers, EMBED, OUTPUT, step)
        for i in range(self.layers):
            y = self.attention(i, self.norm("layers.%d.attn.norm" % i, x), step)
            x = x + self.dropped(y, i, ATTN, OUTPUT, step)
            y = self.mlp(i, self.norm("layers.%d.mlp.norm" % i, x))
            x = x + self.dropped(y, i, MLP, OUTPUT, step)
        head = self.p["embed.tokens" if self.tied else "head.weight"]
        out = F.linear(self.norm("head.norm", x), head)
        return F.cross_entropy(out.reshape(-1, self.v), targets.reshape(-1))

    def on_disk(self):
        """Name and value of each tensor as transformers saves them."""
        p, out = self.p, {}
        if self.gpt:  # Conv1D holds (in, out); q, k and v are one
            out["transformer.wte.weight"] = p["embed.tokens"]
            out["transformer.wpe.weight"] = p["embed.positions"]
            for i in range(self.layers):
                a, m, to = "layers.%d.attn." % i, "layers.%d.mlp." % i, "transformer.h.%d." % i
                out[to + "ln_1.weight"] = p[a + "norm.weight"]
                out[to + "ln_1.bias"] = p[a + "norm.bias"]
                of = {"attn.c_attn.": [a + "q.", a + "k.", a + "v."], "attn.c_proj.": [a + "o."],
                      "mlp.c_fc.": [m + "up."], "mlp.c_proj.": [m + "down."]}
                for name, parts in of.items():
                    out[to + name + "weight"] = torch.cat([p[x + "weight"] for x in parts]).T
                    out[to + name + "bias"] = torch.cat([p[x + "bias"] for x in parts])
                out[to + "ln_2.weight"] = p[m + "norm.weight"]
                out[to + "ln_2.bias"] = p[m + "norm.bias"]
            out["transformer.ln_f.weight"] = p["head.norm.weight"]
            out["transformer.ln_f.bias"] = p["head.norm.bias"]
        else:
            out["model.embed_tokens.weight"] = p["embed.tokens"]
            for i in range(self.layers):
                a, m, to = "layers.%d.attn." % i, "layers.%d.mlp." % i, "model.layers.%d." % i
                out[to + "input_layernorm.weight"] = p[a + "norm.weight"]
                for x in "qkvo":
                    out[to + "self_attn.%s_proj.weight" % x] = p[a + x + ".weight"]
                out[to + "post_attention_layernorm.weight"] = p[m + "norm.weight"]
                for x in ("gate", "up", "down"):
                    out[to + "mlp.%s_proj.weight" % x] = p[m + x + ".weight"]
            out["model.norm.weight"] = p["head.norm.weight"]
        if not self.tied:
            out["lm_head.weight"] = p["head.weight"]
        return out


# ---- a run ----

def rate(o, step):
    """Learning rate of a step: to the peak in `warmup` equal parts, then as the schedule says."""
    peak, least, w = o["optim.lr"], o["optim.lr_min"], o["optim.warmup"]
    if step <= w:
        return peak * step / w
    n, done = o["train.steps"] - w, step - w - 1
    kind = o["optim.schedule"]
    if kind == "constant":
        return peak
    if kind == "linear":
        return peak + (least - peak) * done / n
    if kind == "cosine":
        return least + (peak - least) * (1 + math.cos(math.pi * done / n)) / 2
    stable = n - o["optim.decay_steps"]
    return peak if done < stable else peak + (least - peak) * (done - stable) / (n - stable)


def optimizer(m, o):
    groups = [{"params": [w for name, w in m.p.items() if (name in m.decays) == yes],
               "weight_decay": o["optim.decay"] if yes else 0.0} for yes in (True, False)]
    return torch.optim.AdamW(groups, lr=1.0, betas=(o["optim.beta1"], o["optim.beta2"]),
                             eps=o["optim.eps"])


def train_step(m, o, adam, step, tokens):
    t, batch = o["model.seq"], o["train.batch"]
    count = (len(tokens) - 1) // t
    places = range((step - 1) * batch, step * batch)
    order = [permuted(o["train.seed"], i // count, count, i % count) for i in places]
    adam.zero_grad()
    loss = m.loss([sample(tokens, t, i) for i in order], step)
    loss.backward()
    norm = math.sqrt(sum(w.grad.square().sum().item() for w in m.p.values()))
    if 0 < o["optim.clip"] < norm:
        for w in m.p.values():
            w.grad *= o["optim.clip"] / norm
    for group in adam.param_groups:
        group["lr"] = rate(o, step)
    adam.step()
    return "step %d loss %r norm %r lr %r tokens %d" % (step, loss.item(), norm, rate(o, step),
                                                       step * batch * t)


def validate(m, o, step, tokens):
    t, batches = o["model.seq"], o["train.valid_batches"]
    count = (len(tokens) - 1) // t
    if batches:
        count = min(count, batches * o["train.batch"])
    with torch.no_grad():
        loss = m.loss([sample(tokens, t, i) for i in range(count)], None)
    return "valid %d loss %r" % (step, loss.item())


def tensor_line(name, x):
    x = x.detach()
    flat = x.reshape(-1)
    wave = torch.cos(0.3 * torch.arange(flat.numel(), dtype=torch.float64) + 1)
    shape = list(x.shape) + [1] * (2 - x.dim())
    return "tensor %s %d %d %d l2 %r wave %r" % (name, x.dim(), *shape, flat.norm().item(),
                                                 (flat * wave).sum().item())


def run(name, words):
    o = dict(DEFAULTS)
    for word in words:
        key, value = word.split("=")
        o[key] = type(DEFAULTS[key])(value)
    m = Model(o)
    adam = optimizer(m, o)
    train, valid = tokens_of(TRAIN), tokens_of(VALID)
    lines = ["run " + name, "set " + " ".join(words)]
    for step in range(1, o["train.steps"] + 1):
        lines.append(train_step(m, o, adam, step, train))
        every = o["train.valid_every"]
        if step == o["train.steps"] or (every and step % every == 0):
            lines.append(validate(m, o, step, valid))
    return lines + [tensor_line(*each) for each in m.on_disk().items()]


def main():
    parser = argparse.ArgumentParser(description="fixtures of whole runs")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    path = pathlib.Path(__file__).resolve().parent / "runs.txt"
    lines = ["# Made by tests/oracle/torch_runs.py, which describes the format."]
    for name, words in RUNS.items():
        more = words.split()
        keys = {word.split("=")[0] for word in more}
        lines += run(name, [word for word in BASE if word.split("=")[0] not in keys] + more)
    made = "\n".join(lines) + "\n"
    if args.check:
        ok = path.is_file() and same(made, path.read_text())
        print("%s %s" % ("ok  " if ok else "FAIL", path.name))
        return 0 if ok else 1
    path.write_text(made)
    print("wrote %s, %d bytes" % (path.name, len(made)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
