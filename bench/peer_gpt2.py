#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of `make bench`: PyTorch trains a GPT-2 on the CPU, and one line says how fast.

The same work as `plait train configs/gpt2-124m.yaml`: token and learned position embeddings, blocks
of LayerNorm, causal attention and a GELU (tanh form) MLP with biases, the head tied to the token
embedding, cross entropy over the whole vocabulary, gradient clipping at 1, AdamW with decay on
matrices only. GEMMs in bf16 by autocast, weights and optimizer in f32: what PyTorch's users do
on CPUs. Its own fused attention and optimizer are used; --compile also compiles the model.

    python3 bench/peer_gpt2.py --batch 4 --seq 256 --threads 2

Prints JSON: tok_s from the median step, the steps' seconds, and what it ran with. The first two
steps are left out: memory is touched and kernels are chosen in them.
"""
import argparse
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

WARM_UP_STEPS = 2


class Block(nn.Module):
    def __init__(self, hidden, heads, ffn):
        super().__init__()
        self.heads = heads
        self.attn_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, ffn), nn.Linear(ffn, hidden)

    def forward(self, x):
        batch, seq, hidden = x.shape
        qkv = self.qkv(self.attn_norm(x)).view(batch, seq, 3, self.heads, hidden // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.tokens = nn.Embedding(args.vocab, args.hidden)
        self.positions = nn.Embedding(args.seq, args.hidden)
        self.blocks = nn.ModuleList(Block(args.hidden, args.heads, 4 * args.hidden)
                                    for _ in range(args.layers))
        self.norm = nn.LayerNorm(args.hidden)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    try:
        return torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)
    except (RuntimeError, TypeError):  # older releases have no fused one for CPUs
        return torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95))


def step(model, optimizer, tokens, targets, bf16):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        logits = model(tokens)
    loss = F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description="train a GPT-2 on the CPU, say how fast")
    for name, value in (("batch", 4), ("seq", 256), ("threads", 2), ("steps", 8), ("layers", 12),
                        ("hidden", 768), ("heads", 12), ("vocab", 50304)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--f32", action="store_true", help="no autocast")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    model = Gpt2(args)
    optimizer = make_optimizer(model)
    run = torch.compile(model) if args.compile else model
    tokens = torch.randint(args.vocab, (args.batch, args.seq + 1))
    seconds = []
    for _ in range(WARM_UP_STEPS + args.steps):
        begin = time.perf_counter()
        step(run, optimizer, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), not args.f32)
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds[WARM_UP_STEPS:])
    json.dump({"tok_s": round(args.batch * args.seq / median, 1), "median_s": round(median, 3),
               "fastest_s": round(min(seconds), 3), "batch": args.batch, "seq": args.seq,
               "threads": args.threads, "dtype": "f32" if args.f32 else "bf16",
               "torch": torch.__version__}, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
