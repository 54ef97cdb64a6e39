#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""transformers as the judge of plait's folders, in both directions.

    hf_judge.py PLAIT            make random gpt2 and llama models, save them with save_pretrained,
                                 and hold `plait generate --ids` on several layouts against
                                 transformers: logits and greedy ids; then load what plait's runs
                                 left and what is exported of their checkpoints into
                                 AutoModelForCausalLM, and again; and the first steps of
                                 `plait train model.init=FOLDER` against the model's own loss and
                                 the norm of its gradient
    hf_judge.py --fixtures DIR   write the small models that tests/dist/test_folders.c reads, those
                                 of this version of transformers

Run in an environment with torch and transformers; `make judges` makes two of them. The last line is
"N passed, N failed, N skipped".

A fixture is a folder that save_pretrained wrote, with expected.txt beside it: a line of the
prompt's ids, a line of all ids behind greedy decoding, and a line of logits for each of them, in
f64. loss.txt beside it is a line of ids, then the model's mean loss over them and the norm of its
gradient, both in f64.
"""
import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

TOKENS = 12
LAYOUTS = [
    [],
    ["parallel.tp=2"],
    ["parallel.tp=2", "parallel.sp=true", "parallel.pp=2"],
    ["parallel.pp=2", "parallel.chunks=1"],
]
GPT = dict(n_embd=16, n_layer=2, n_head=4, n_positions=20, initializer_range=0.4)
LLAMA = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=20, initializer_range=0.4)


def gpt(**more):
    return GPT2Config(**{**GPT, "vocab_size": 61, **more})


def llama(**more):
    return LlamaConfig(**{**LLAMA, "vocab_size": 67, **more})


def rope(**more):
    """Both forms that versions of transformers take."""
    if transformers.__version__.startswith("4."):
        return more
    return {"rope_parameters": {"rope_type": "default", **more}}


# name, configuration, type of the weights, largest shard
MODELS = [
    ("gpt-tied-f32", gpt(), torch.float32, "1GB"),
    ("gpt-untied-bf16", gpt(tie_word_embeddings=False), torch.bfloat16, "1GB"),
    ("gpt-shards-f16", gpt(n_inner=20, layer_norm_epsilon=1e-3), torch.float16, "2KB"),
    ("gpt-odd-vocab", gpt(vocab_size=1009, activation_function="gelu_pytorch_tanh"), torch.float32,
     "1GB"),
    ("gpt-dropouts", gpt(resid_pdrop=0.0, attn_pdrop=0.3, eos_token_id=5), torch.float32, "1GB"),
    ("llama-untied-f32", llama(), torch.float32, "1GB"),
    ("llama-tied-bf16", llama(tie_word_embeddings=True), torch.bfloat16, "1GB"),
    ("llama-shards-f16", llama(head_dim=10, rms_norm_eps=1e-3), torch.float16, "2KB"),
    ("llama-theta", llama(**rope(rope_theta=500.0)), torch.float32, "1GB"),
    ("llama-ends", llama(num_key_value_heads=4, eos_token_id=[3, 9, 17]), torch.float32, "1GB"),
]
# By the version that writes them: the forms of rotary positions differ.
FIXTURES = {"4": ["gpt-tied-f32", "gpt-untied-bf16", "llama-tied-bf16", "llama-theta"],
            "5": ["gpt-shards-f16", "llama-shards-f16"]}

passed = failed = 0


def verdict(name, good, why=""):
    global passed, failed
    passed += bool(good)
    failed += not good
    print("%s %s%s" % ("ok  " if good else "FAIL", name, "" if good else ": %s" % why), flush=True)


def save_model(name, config, dtype, shard, folder):
    torch.manual_seed(sum(map(ord, name)))
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # norms and biases are ones and zeros otherwise
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    model.to(dtype).save_pretrained(folder, max_shard_size=shard, safe_serialization=True)


def load_double(folder):
    model, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    clean = not told["missing_keys"] and not told["unexpected_keys"] and not told["mismatched_keys"]
    return model.double().eval(), clean, told


def greedy(model, prompt, tokens):
    """Ids and, for each that is drawn, all logits."""
    ids, rows = list(prompt), []
    with torch.no_grad():
        for _ in range(tokens):
            rows.append(model(torch.tensor([ids])).logits[0, -1].double())
            ids.append(int(rows[-1].argmax()))
    return ids, torch.stack(rows)


def ask(plait, folder, prompt, words, logits=None):
    command = [plait, "generate", str(folder), "--ids", ",".join(map(str, prompt)), "--tokens",
               str(TOKENS), "--temperature", "0", *words]
    if logits:
        command += ["--logits", str(logits)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        return None, done.stderr.strip()
    return [int(word) for word in done.stdout.split(",")], done.stderr


def compare(plait, name, folder, model, prompt, scratch):
    """plait on every layout and on ref and cpu against the model."""
    ids, rows = greedy(model, prompt, TOKENS)
    size = float(rows.abs().max())
    for device, bound in (("ref", 2e-6), ("cpu", 2e-5)):
        for layout in LAYOUTS:
            words = ["--ignore-eot", "train.device=" + device, "parallel.pp=1", "parallel.tp=1",
                     "parallel.sp=false", *layout]
            got, said = ask(plait, folder, prompt, words, scratch)
            what = "%s %s %s" % (name, device, " ".join(layout))
            if got is None:
                verdict(what, False, said)
                continue
            mine = torch.tensor([[float(x) for x in line.split()]
                                 for line in scratch.read_text().splitlines()],
                                dtype=torch.float64)
            far = float((mine - rows).abs().max()) if mine.shape == rows.shape else float("inf")
            verdict(what, got == ids and far <= bound * size,
                    "%s, wanted %s; logits differ by %g of %g" % (got, ids, far, size))
    return ids


def first_step(model, ids):
    """Mean loss a token of the text, and the norm of the gradient of all parameters."""
    model.zero_grad()
    text = torch.tensor([ids])
    loss = torch.nn.functional.cross_entropy(model(text[:, :-1]).logits[0].double(), text[0, 1:])
    loss.backward()
    squares = sum(float((p.grad.double() ** 2).sum()) for p in model.parameters())
    model.zero_grad()
    return loss.item(), squares ** 0.5


def drawn_ids(plait, file, vocab, n):
    """A token file of n ids, and they."""
    subprocess.run([plait, "data", "random", "--vocab", str(vocab), "--tokens", str(n), "-o",
                    str(file)], check=True, capture_output=True)
    return list(struct.unpack_from("<%dH" % n, file.read_bytes(), 128))


def begins(plait, name, folder, model, tmp):
    """The first step of a run that begins with the folder, on every layout. The one sample there is
    makes the batch, so the loss is that of its text."""
    ids = drawn_ids(plait, tmp / "tokens", model.config.vocab_size, 21)
    loss, norm = first_step(model, ids)
    for device, bound in (("ref", 2e-6), ("cpu", 2e-5)):
        for i, layout in enumerate(LAYOUTS + [["parallel.dp=2", "parallel.zero=1"]]):
            run = tmp / ("%s-begun-%s-%d" % (name, device, i))
            done = subprocess.run([plait, "train", "model.init=%s" % folder, "model.seq=20",
                                   "data.train=%s" % (tmp / "tokens"), "run.dir=%s" % run,
                                   "train.steps=1", "train.batch=4", "optim.clip=0",
                                   "train.device=" + device, *layout],
                                  capture_output=True, text=True, timeout=300)
            what = "%s begins on %s %s" % (name, device, " ".join(layout))
            if done.returncode != 0:
                verdict(what, False, done.stderr)
                continue
            step = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
            verdict(what, abs(step["loss"] - loss) <= bound * loss and
                    abs(step["grad_norm"] - norm) <= bound * norm,
                    "loss %.9g and norm %.9g, wanted %.9g and %.9g" %
                    (step["loss"], step["grad_norm"], loss, norm))


def with_ends(plait, name, folder, model, prompt):
    """Where transformers' own generate stops, plait stops."""
    with torch.no_grad():
        want = model.generate(torch.tensor([prompt]), max_new_tokens=TOKENS, do_sample=False,
                              pad_token_id=0)[0].tolist()
    got, said = ask(plait, folder, prompt, ["train.device=ref"])
    verdict("%s ends as generate() does" % name, got == want,
            "%s, wanted %s %s" % (got, want, said))
    verdict("%s has no key that plait does not know" % name, said == "", said)


def foreign(plait, tmp):
    for name, config, dtype, shard in MODELS:
        folder = tmp / name
        save_model(name, config, dtype, shard, folder)
        model, clean, told = load_double(folder)
        verdict(name + " loads back", clean, told)
        prompt = [3, 1, 4, 1, 5]
        compare(plait, name, folder, model, prompt, tmp / "logits")
        with_ends(plait, name, folder, model, prompt)
        begins(plait, name, folder, model, tmp)
        done = subprocess.run([plait, "generate", str(folder), "--prompt", "x"],
                              capture_output=True, text=True, timeout=60)
        verdict(name + " has no text", done.returncode == 13 and "none found" in done.stderr,
                done.stderr)


def exported(plait, name, run, model, prompt, tmp):
    """An earlier step in one file of f32, and the last one in several of bf16."""
    for step, words, dtype in (("10", [], torch.float32),
                               ("20", ["--dtype", "bf16", "--shard-size", "0.00002"],
                                torch.bfloat16)):
        what = "%s-step-%s" % (name, step)
        folder = tmp / what
        done = subprocess.run([plait, "export", str(run), step, "-o", str(folder), *words],
                              capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            verdict(what, False, done.stderr)
            continue
        mine, clean, told = load_double(folder)
        verdict(what + " loads", clean, told)
        verdict(what + " ends where the run's does",
                mine.generation_config.eos_token_id == model.config.eos_token_id == 256,
                mine.generation_config)
        compare(plait, what, folder, mine, prompt, tmp / "logits")
        theirs = dict(model.named_parameters())
        far = [key for key, value in mine.named_parameters()
               if not torch.equal(value, theirs[key].to(dtype).double())]
        verdict(what + (" is the run rounded" if step == "20" else " is another step"),
                (far == []) == (step == "20"), far[:3])


def own(plait, tmp):
    """What a run left, in transformers; and what transformers saves of that, in plait."""
    text = tmp / "text"
    text.write_text("braids of strands " * 200)
    subprocess.run([plait, "data", "prepare", str(text), "-o", str(tmp / "tok")], check=True,
                   capture_output=True)
    for kind in ("gpt", "llama"):
        for tied in ("true", "false"):
            name = "run-%s-tied-%s" % (kind, tied)
            run = tmp / name
            words = ["model.kind=" + kind, "model.tied=" + tied, "model.layers=3",
                     "model.hidden=24", "model.heads=4", "model.seq=32", "model.vocab=263",
                     "model.init_std=0.2", "model.norm_eps=3e-4", "model.rope_theta=700",
                     "model.dropout=0.1", "train.steps=20", "train.batch=4", "optim.lr=0.01",
                     "parallel.tp=2", "parallel.pp=2", "train.save_every=10"]
            words += ["model.kv_heads=2", "model.head_dim=10"] if kind == "llama" else []
            done = subprocess.run([plait, "train", *words, "data.train=%s" % (tmp / "tok"),
                                   "run.dir=%s" % run], capture_output=True, text=True,
                                  timeout=300)
            if done.returncode != 0:
                verdict(name, False, done.stderr)
                continue
            model, clean, told = load_double(run)
            verdict(name + " loads", clean, told)
            prompt = list(b"braids of")
            compare(plait, name, run, model, prompt, tmp / "logits")
            exported(plait, name, run, model, prompt, tmp)
            again = tmp / (name + "-again")
            model.float().save_pretrained(again)
            compare(plait, name + "-again", again, model.double(), prompt, tmp / "logits")
            model.float().save_pretrained(run)  # beside config.yaml, with which it agrees
            compare(plait, name + "-in-place", run, model.double(), prompt, tmp / "logits")


def write_loss(folder, model):
    """Of ids that any program can make."""
    ids = [(7 * i * i + 3 * i + 1) % model.config.vocab_size for i in range(21)]
    loss, norm = first_step(model, ids)
    (folder / "loss.txt").write_text("%s\n%.17g\n%.17g\n" % (" ".join(map(str, ids)), loss, norm))


def write_fixtures(into):
    for name, config, dtype, shard in MODELS:
        if name not in FIXTURES[transformers.__version__[0]]:
            continue
        folder = into / name
        save_model(name, config, dtype, shard, folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        model, clean, told = load_double(folder)
        prompt = [3, 1, 4, 1, 5]
        ids, rows = greedy(model, prompt, 6)
        lines = [" ".join(map(str, prompt)), " ".join(map(str, ids))]
        lines += [" ".join("%.9g" % x for x in row.tolist()) for row in rows]
        (folder / "expected.txt").write_text("\n".join(lines) + "\n")
        write_loss(folder, model)
        size = sum(f.stat().st_size for f in folder.iterdir())
        print("wrote %s, %d bytes, all of it read: %s" % (folder, size, clean))


def main():
    parser = argparse.ArgumentParser(description="transformers against plait")
    parser.add_argument("plait", nargs="?", help="the program, build/plait")
    parser.add_argument("--fixtures", metavar="DIR", help="write fixtures instead")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print("transformers %s, torch %s" % (transformers.__version__, torch.__version__))
    if args.fixtures:
        write_fixtures(pathlib.Path(args.fixtures))
        return 0
    with tempfile.TemporaryDirectory() as name:
        tmp = pathlib.Path(name)
        foreign(args.plait, tmp)
        own(args.plait, tmp)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
