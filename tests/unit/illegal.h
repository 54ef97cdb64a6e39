/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations that have to be refused, with what their messages must name. Read by test_check.c,
 * which asserts code and words, and by tests/golden/test_errors.c, which holds the whole messages;
 * test_check_report.c takes the files.
 * Each begins from the defaults, model.vocab=257 and train.device=ref, in a folder with text.txt
 * and two token files made of it: bytes.tok, and other.tok, which names another tokenizer; with
 * one.csv, the defaults' step on one rank as a list, and mini.csv, one microbatch of it; and with
 * two.csv, the costs of two stages.
 */
#ifndef PLAIT_TEST_ILLEGAL_H
#define PLAIT_TEST_ILLEGAL_H

#include "base/fs.h"
#include "base/mem.h"
#include "data/data.h"
#include "data/data_file.h"
#include "check/check.h"
#include "test.h"
#include <stdio.h>
#include <string.h>

struct illegal {
    const char *set; /* key=value words, separated by spaces */
    int ranks;
    enum check_for purpose;
    enum err code;
    const char *name, *value, *rule; /* each must stand in the message */
};

static const struct illegal illegal[] = {
    {"train.save_best=true", 0, 0, ERR_CONFIG, "train.save_best", "train.valid_every 0",
     "none before the end"},
    {"train.save_best=true train.valid_every=1 train.save_keep=0", 0, 0, ERR_CONFIG,
     "train.save_keep is 0", "train.save_best true", "asks for one"},
    {"train.device=null parallel.pp=2", 0, 0, ERR_CONFIG, "train.device", "2 ranks", "no memory"},
    /* one key by itself */
    {"model.layers=0", 0, 0, ERR_CONFIG, "model.layers", "0", "nearest legal value is 1"},
    {"model.layers=99999999999999999999", 0, 0, ERR_CONFIG, "model.layers", "99999999999999999999",
     "whole number"},
    {"model.init=nowhere", 0, 0, ERR_CONFIG, "model.init", "nowhere", "there is no folder"},
    {"model.init=nowhere train.device=null", 0, 0, ERR_CONFIG, "model.init", "nowhere",
     "train.device is null"},
    {"model.layers=-1", 0, 0, ERR_CONFIG, "model.layers", "-1", "nearest legal value is 1"},
    {"model.layers=2.5", 0, 0, ERR_CONFIG, "model.layers", "2.5", "whole number"},
    {"model.kind=mlp", 0, 0, ERR_CONFIG, "model.widths lists 0", "from 2 to 32",
     "use model.kind gpt"},
    {"model.kind=mlp model.widths=512", 0, 0, ERR_CONFIG, "model.widths lists 1",
     "[512,1024,256,10]", "those of a row"},
    {"model.kind=mlp model.widths=8,0", 0, 0, ERR_CONFIG, "model.widths (element 2) 0",
     "outside 1 to", "nearest legal value is 1"},
    {"model.kind=mlp model.widths=8,4 parallel.tp=2", 0, 0, ERR_CONFIG, "parallel.tp is 2",
     "not cut over tensor ranks", "parallel.tp 1"},
    {"model.kind=mlp model.widths=8,6,4 parallel.pp=3", 0, 0, ERR_CONFIG, "parallel.pp 3",
     "the layers of model.widths: 2", "parallel.pp 2"},
    {"model.kind=lama", 0, 0, ERR_CONFIG, "model.kind", "lama", "the nearest is llama"},
    {"model.dropout=1", 0, 0, ERR_CONFIG, "model.dropout", "1", "nearest legal value is 0.9"},
    {"model.dropout=-0.1", 0, 0, ERR_CONFIG, "model.dropout", "-0.1", "nearest legal value is 0"},
    {"model.tied=maybe", 0, 0, ERR_CONFIG, "model.tied", "maybe", "true or false"},
    {"model.seq=2147483648", 0, 0, ERR_CONFIG, "model.seq", "2147483648", "16777216"},
    {"parallel.tp=0", 0, 0, ERR_CONFIG, "parallel.tp", "0", "nearest legal value is 1"},
    {"train.dtype=fp16", 0, 0, ERR_CONFIG, "train.dtype", "fp16", "f32|bf16"},
    {"train.dtype=float32", 0, 0, ERR_CONFIG, "train.dtype", "float32", "the nearest is f32"},
    {"train.dtype=double", 0, 0, ERR_CONFIG, "train.dtype", "double", "train.device ref"},
    {"train.device=gpu", 0, 0, ERR_CONFIG, "train.device", "gpu", "the nearest is cuda"},
    {"train.device=rocm", 0, 0, ERR_CONFIG, "train.device", "rocm", "NVIDIA's alone, as cuda"},
    {"train.transport=nccl", 0, 0, ERR_CONFIG, "train.transport", "nccl", "thread|mpi"},
    {"train.recompute=on", 0, 0, ERR_CONFIG, "train.recompute", "on", "the nearest is full"},
    {"train.recompute=every:0", 0, 0, ERR_CONFIG, "train.recompute", "every:0",
     "the nearest is every:1"},
    {"train.recompute=every:2000000", 0, 0, ERR_CONFIG, "train.recompute", "every:2000000",
     "the nearest is every:1048576"},
    {"train.recompute=every:1 parallel.pp=2 parallel.schedule=zb-h1", 0, 0, ERR_CONFIG,
     "train.recompute", "zb-h1", "use train.recompute none or full, or parallel.schedule 1f1b"},
    {"train.recompute=sqrt parallel.pp=2 parallel.chunks=2 parallel.schedule=dualpipev", 0, 0,
     ERR_CONFIG, "train.recompute", "dualpipev", "parallel.schedule interleaved"},
    {"parallel.sp=on", 0, 0, ERR_CONFIG, "parallel.sp", "on", "the nearest is true"},
    {"optim.beta1=1", 0, 0, ERR_CONFIG, "optim.beta1", "1", "0.999999"},
    {"optim.eps=0", 0, 0, ERR_CONFIG, "optim.eps", "0", "1e-30"},
    {"optim.lr=nan", 0, 0, ERR_CONFIG, "optim.lr", "nan", "a number from 0 to 100"},
    {"model.layer=2", 0, 0, ERR_CONFIG, "model.layer", "no key", "the nearest is model.layers"},
    {"train.lr=1", 0, 0, ERR_CONFIG, "train.lr", "no key", "the nearest is optim.lr"},
    {"parallel.microbatches=4", 0, 0, ERR_CONFIG, "parallel.microbatches", "no key",
     "the nearest is parallel.microbatch"},
    {"layers=2", 0, 0, ERR_CONFIG, "layers", "no key", "the nearest is model.layers"},
    {"steps", 0, 0, ERR_CONFIG, "steps", "key=value", "model.layers=12"},

    {"train.graph=on", 0, 0, ERR_CONFIG, "train.graph on", "train.device cuda", "auto or off"},

    /* the optimizer */
    {"parallel.zero=2", 0, 0, ERR_CONFIG, "parallel.zero", "0|1", "not sharded yet"},
    {"parallel.zero=true", 0, 0, ERR_CONFIG, "parallel.zero", "true", "nearest is 1"},
    {"optim.lr=1e-4 optim.lr_min=1e-3", 0, 0, ERR_CONFIG, "optim.lr_min 0.001", "optim.lr 0.0001",
     "use optim.lr_min 0.0001 or 0, or optim.lr 0.001"},
    {"optim.schedule=constant optim.lr_min=1e-5", 0, 0, ERR_CONFIG, "optim.lr_min 1e-05",
     "constant", "has no effect"},
    {"optim.decay_steps=5", 0, 0, ERR_CONFIG, "optim.decay_steps 5", "cosine",
     "use optim.decay_steps 0, or optim.schedule wsd"},
    {"optim.schedule=wsd", 0, 0, ERR_CONFIG, "optim.decay_steps 0", "it ends in a decay",
     "use optim.decay_steps 1, or optim.schedule constan"},

    /* schedules */
    {"parallel.schedule=seq1f1b parallel.pp=2", 0, 0, ERR_CONFIG, "parallel.schedule seq1f1b",
     "parallel.pp 2", "no number of slices"},

    /* device and type */
    {"train.device=ref train.dtype=bf16", 0, 0, ERR_CONFIG, "train.dtype bf16", "ref",
     "computes in f64"},
    {"train.share_gpus=true", 0, 0, ERR_CONFIG, "train.share_gpus true", "train.device ref",
     "no GPU"},
    {"train.share_gpus=true train.device=cuda train.transport=mpi", 0, 0, ERR_CONFIG,
     "train.share_gpus true", "train.transport mpi", "only threads"},
    {"train.share_gpus=true train.device=cuda parallel.dp=16 train.batch=16", 0, 0, ERR_CONFIG,
     "train.share_gpus true", "16 ranks", "at most 8"},

    /* the model */
    {"model.vocab=0", 0, 0, ERR_CONFIG, "model.vocab is 0", "data.train is empty", "set vocab"},
    {"model.hidden=130", 0, 0, ERR_CONFIG, "model.hidden 130", "model.heads 4",
     "use model.hidden 128 or 132, or model.heads 5 or 2"},
    {"model.hidden=3", 0, 0, ERR_CONFIG, "model.hidden 3", "model.heads 4",
     "use model.hidden 4, or model.heads 3"},
    {"model.kv_heads=2", 0, 0, ERR_CONFIG, "model.kv_heads", "2", "model.kind llama"},
    {"model.head_dim=16", 0, 0, ERR_CONFIG, "model.head_dim 16", "model.hidden, 128",
     "use model.heads 8, or model.head_dim 32 or 0, or m"},
    {"model.kind=llama model.heads=12 model.hidden=96 model.kv_heads=5", 0, 0, ERR_CONFIG,
     "model.kv_heads 5", "model.heads 12",
     "use model.kv_heads 4 or 6"},
    {"model.kind=llama model.head_dim=15", 0, 0, ERR_CONFIG, "model.head_dim", "15", "14 or 16"},

    /* ranks */
    {"parallel.tp=2 parallel.pp=2", 6, 0, ERR_CONFIG, "started: 6",
     "parallel.tp 2 x parallel.pp 2 x parallel.dp 1 needs 4",
     "needs 4; start 4"},
    {"parallel.tp=2 parallel.pp=2", 8, 0, ERR_CONFIG, "started: 8", "needs 4",
     "start 4, or use parallel.dp 2"},
    {"parallel.tp=2 parallel.pp=2 parallel.dp=4", 7, 0, ERR_CONFIG, "started: 7", "needs 16",
     "start 16"},
    {"parallel.tp=4 parallel.pp=4 parallel.dp=8", 3, 0, ERR_CONFIG, "started: 3", "needs 128",
     "start 128"},
    {"parallel.tp=4096 parallel.pp=4096", 0, 0, ERR_CONFIG, "parallel.pp 4096", "1048576", "ranks"},

    /* the tensor axis */
    {"model.heads=12 model.hidden=96 parallel.tp=8", 0, 0, ERR_CONFIG, "parallel.tp 8",
     "model.heads 12",
     "use parallel.tp 6 or 12, or model.heads 8 or 16"},
    {"model.kind=llama model.heads=40 model.hidden=320 model.kv_heads=10 model.ffn=3200 "
     "parallel.tp=4", 0, 0, ERR_CONFIG, "parallel.tp 4", "model.kv_heads 10",
     "use parallel.tp 5 or 2, or model.kv_heads 8 or 20"},
    {"model.ffn=510 parallel.tp=4", 0, 0, ERR_CONFIG, "parallel.tp 4", "model.ffn 510",
     "use parallel.tp 2, or model.ffn 508 or 512"},
    {"model.seq=127 parallel.tp=2 parallel.sp=true", 0, 0, ERR_CONFIG, "model.seq 127",
     "parallel.tp 2", "126 or 128"},
    {"model.vocab=2 parallel.tp=4", 0, 0, ERR_CONFIG, "parallel.tp 4", "model.vocab 2",
     "use parallel.tp 2, or model.vocab 4"},

    /* the pipeline axis */
    {"parallel.pp=5", 0, 0, ERR_CONFIG, "parallel.pp 5", "model.layers 4",
     "use parallel.pp 4, or model.layers 5"},
    {"parallel.pp=2 parallel.chunks=3 parallel.schedule=interleaved", 0, 0, ERR_CONFIG,
     "parallel.chunks 3", "makes 6 stages",
     "use parallel.pp 1, or parallel.chunks 2 or 0, or model."},
    {"parallel.pp=2 parallel.split=layers.2,layers.3", 0, 0, ERR_CONFIG,
     "parallel.split has 2 names", "makes 2 stages: that takes 1", "use parallel.split [], or par"},
    {"parallel.split=layers.2", 0, 0, ERR_CONFIG, "parallel.split has 1 name", "that takes 0",
     "use parallel.split [], or parallel.pp 2"},
    {"parallel.pp=2 parallel.schedule=zb-v parallel.split=layers.2", 0, 0, ERR_CONFIG,
     "parallel.split has 1 name", "parallel.chunks 2 makes 4 stages: that takes 3", "split []"},
    {"parallel.pp=2 parallel.split=layers.4", 0, 0, ERR_CONFIG, "parallel.split names \"layers.4\"",
     "layers.0 to layers.3", "the nearest is layers.3; use parallel.split []"},
    {"parallel.pp=2 parallel.split=layers.17.mlp", 0, 0, ERR_CONFIG, "\"layers.17.mlp\"",
     "no such layer", "the nearest is layers.3.mlp"},
    {"parallel.pp=2 parallel.split=layers.2.mpl", 0, 0, ERR_CONFIG, "\"layers.2.mpl\"",
     "no such layer", "the nearest is layers.2.mlp"},
    {"parallel.pp=2 parallel.split=decoder.layer.2", 0, 0, ERR_CONFIG, "\"decoder.layer.2\"",
     "no such layer", "the nearest is layers."},
    {"parallel.pp=2 parallel.split=2", 0, 0, ERR_CONFIG, "parallel.split names \"2\"",
     "no such layer", "the nearest is layers."},
    {"parallel.pp=3 parallel.split=layers.2,layers.1", 0, 0, ERR_CONFIG,
     "parallel.split names \"layers.1\" behind \"layers.2\"", "in the model's order", "split []"},
    {"parallel.pp=3 parallel.split=layers.1,layers.1.attn", 0, 0, ERR_CONFIG,
     "names \"layers.1.attn\" behind \"layers.1\"", "a layer of its own", "split []"},
    {"parallel.pp=2 parallel.split=embed", 0, 0, ERR_CONFIG, "parallel.split names \"embed\"",
     "in the model's order", "split []"},
    {"parallel.pp=2 parallel.split=[layers.2", 0, 0, ERR_CONFIG, "parallel.split", "is not closed",
     "write a list as [a, b]"},
    {"parallel.schedule=1fb1", 0, 0, ERR_CONFIG, "parallel.schedule", "1fb1",
     "the nearest is 1f1b"},
    {"train.canonical_accumulation=true", 0, 0, ERR_CONFIG, "train.canonical_accumulation true",
     "model.tied true",
     "use train.canonical_accumulation false, or model.t"},
    {"train.canonical_accumulation=true parallel.pp=2 parallel.schedule=zb-v", 0, 0, ERR_CONFIG,
     "train.canonical_accumulation true", "parallel.schedule zb-v",
     "use train.canonical_accumulation false, or model.t"},
    {"train.canonical_accumulation=true parallel.schedule=file:one.csv", 0, 0, ERR_CONFIG,
     "train.canonical_accumulation true", "parallel.schedule file:one.csv",
     "use train.canonical_accumulation false, or model.t"},
    {"parallel.schedule=zebra", 0, 0, ERR_CONFIG, "parallel.schedule", "zebra",
     "plait help schedules"},
    {"parallel.schedule=file:one.csv parallel.pp=2", 0, 0, ERR_CONFIG,
     "parallel.schedule file:one.csv", "lines for 1 rank, and", "use parallel.pp 1"},
    {"parallel.schedule=file:one.csv parallel.chunks=2", 0, 0, ERR_CONFIG,
     "parallel.schedule file:one.csv", "has 1 stage a rank", "use parallel.chunks 1"},
    {"parallel.schedule=file:mini.csv", 0, 0, ERR_CONFIG, "parallel.schedule file:mini.csv",
     "has 1 microbatch, and", "use train.batch 1"},
    {"parallel.pp=2 parallel.chunks=2", 0, 0, ERR_CONFIG, "parallel.schedule 1f1b",
     "parallel.chunks 2", "chunk"},
    {"parallel.pp=4 parallel.group=4", 0, 0, ERR_CONFIG, "parallel.schedule 1f1b",
     "parallel.group 4", "use parallel.group 0"},
    {"parallel.pp=2 parallel.chunks=2 parallel.schedule=interleaved parallel.group=1", 0, 0,
     ERR_CONFIG, "parallel.schedule interleaved", "parallel.group 1",
     "use parallel.pp 1, or parallel.group 2 or 0"},
    {"parallel.pp=2 parallel.chunks=2 parallel.schedule=interleaved parallel.group=9", 0, 0,
     ERR_CONFIG, "parallel.schedule interleaved", "parallel.group 9",
     "use parallel.group 8"},
    {"parallel.pp=2 parallel.chunks=1 parallel.schedule=zb-v", 0, 0, ERR_CONFIG,
     "parallel.schedule zb-v", "parallel.chunks 1",
     "use parallel.chunks 2 or 0, or parallel.schedule 1"},
    {"parallel.pp=3 parallel.schedule=v-half", 0, 0, ERR_CONFIG, "parallel.chunks 2",
     "makes 6 stages",
     "use parallel.pp 2, or model.layers 6"},
    {"parallel.pp=2 parallel.chunks=2 parallel.schedule=zb-h1", 0, 0, ERR_CONFIG,
     "parallel.schedule zb-h1", "parallel.chunks 2",
     "use parallel.chunks 1"},

    /* costs and a limit of memory */
    {"parallel.costs=none.csv", 0, 0, ERR_CONFIG, "parallel.costs", "none.csv", "no such file"},
    {"parallel.costs=text.txt", 0, 0, ERR_CONFIG, "parallel.costs", "text.txt, line 1",
     "stage,F,B,I,W"},
    {"parallel.pp=4 parallel.costs=two.csv", 0, 0, ERR_CONFIG, "parallel.costs", "two.csv",
     "no line for stage 2 of 4; this layout has 4 stages"},
    {"parallel.costs=two.csv", 0, 0, ERR_CONFIG, "parallel.costs", "two.csv, line 3",
     "is not a stage here; this layout has 1 stage (ranks x chunks), from 0"},
    {"parallel.pp=2 parallel.memory_limit=2", 0, 0, ERR_CONFIG, "parallel.schedule 1f1b",
     "parallel.memory_limit 2",
     "use parallel.memory_limit 0, or parallel.schedule "},
    {"parallel.pp=2 parallel.schedule=zb-1p parallel.memory_limit=0.5", 0, 0, ERR_CONFIG,
     "parallel.schedule zb-1p", "parallel.memory_limit 0.5",
     "use parallel.memory_limit 1 or 0"},
    {"parallel.pp=2 parallel.schedule=zb-v parallel.memory_limit=1", 0, 0, ERR_CONFIG,
     "parallel.schedule zb-v", "parallel.memory_limit 1",
     "use parallel.memory_limit 2 or 0, or parallel.sche"},
    {"parallel.schedule=file:text.txt parallel.memory_limit=2", 0, 0, ERR_CONFIG,
     "parallel.memory_limit 2", "has its order already",
     "use parallel.memory_limit 0"},
    {"parallel.memory_limit=-1", 0, 0, ERR_CONFIG, "parallel.memory_limit", "-1",
     "nearest legal value is 0"},

    /* the step */
    {"parallel.dp=3", 0, 0, ERR_CONFIG, "train.batch 8", "parallel.dp 3",
     "use train.batch 9 or 6, or parallel.dp 2 or 4"},
    {"parallel.dp=16", 0, 0, ERR_CONFIG, "train.batch 8", "parallel.dp 16",
     "use train.batch 16, or parallel.dp 8"},
    {"parallel.microbatch=9", 0, 0, ERR_CONFIG, "parallel.microbatch 9", "train.batch 8",
     "use parallel.microbatch 8, or train.batch 9"},
    {"parallel.dp=2 parallel.microbatch=5", 0, 0, ERR_CONFIG, "parallel.microbatch 5",
     "parallel.dp 2",
     "use parallel.microbatch 4, or train.batch 10, or p"},
    {"train.batch=131071", 0, 0, ERR_CONFIG, "parallel.microbatch 1", "131071",
     "use parallel.microbatch 3"},
    {"train.batch=16777216 parallel.microbatch=1024 model.seq=16777216 train.steps=4294967295", 0,
     0, ERR_CONFIG, "train.steps 4294967295", "model.seq 16777216", "64 bits"},

    {"model.layers=10000 model.hidden=16777216 model.ffn=16777216 model.heads=65536", 0, 0,
     ERR_CONFIG, "model.layers 10000", "hidden 16777216",
     "use model.layers 9"},

    /* files */
    {"data.train=none.tok", 0, 0, ERR_DATA, "data.train", "none.tok", "no such file"},
    {"data.valid=none.tok", 0, 0, ERR_DATA, "data.valid", "none.tok", "no such file"},
    {"data.train=.", 0, 0, ERR_DATA, "data.train", ".", "it is a folder"},
    {"data.train=text.txt", 0, 0, ERR_DATA, "data.train", "text.txt", "token file"},
    {"data.train=bytes.tok model.vocab=256", 0, 0, ERR_TOKEN, "data.train", "257",
     "use model.vocab 257 or 0"},
    {"data.train=bytes.tok model.seq=4096", 0, 0, ERR_DATA, "data.train", "4096", "model.seq"},
    {"model.vocab=0 data.train=none.tok", 0, 0, ERR_DATA, "data.train", "none.tok", "no such file"},

    /* what only a start needs */
    {"train.steps=1", 0, CHECK_TRAIN, ERR_CONFIG, "data.train", "empty", "plait data prepare"},
    {"train.save_keep=0 train.save_every=7", 0, 0, ERR_CONFIG, "train.save_keep", "7",
     "train.save_every 0"},
    {"data.train=bytes.tok train.valid_every=5", 0, CHECK_TRAIN, ERR_CONFIG, "train.valid_every 5",
     "data.valid", "set both to 0"},
    {"data.train=bytes.tok run.dir=", 0, CHECK_TRAIN, ERR_CONFIG, "run.dir", "empty",
     "needs a folder"},
    {"data.train=bytes.tok data.valid=other.tok", 0, 0, ERR_TOKEN, "data.valid", "data.train",
     "one tokenizer"},
    {"parallel.pp=8 model.layers=4 parallel.chunks=8", 0, 0, ERR_CONFIG, "parallel.chunks 8",
     "model.layers 4",
     "use model.layers 64"},
};
enum { ILLEGAL_COUNT = sizeof illegal / sizeof *illegal };

/* Writes the files that the words name. */
static inline void illegal_files(void)
{
    static const char line[] = "a line here\n";
    static const char costs[] = "stage,F,B,I,W\n0,1,2,1,1\n1,1,2,1,1\n";
    static const char list[] = "0F0,0B0,0F1,0B1,0F2,0B2,0F3,0B3,0F4,0B4,0F5,0B5,0F6,0B6,0F7,0B7\n";
    const char *text[] = {"text.txt"};
    struct data_prepare make = {.text = text, .texts = 1, .out = "bytes.tok", .tokenizer = "bytes"};
    char body[1200];
    uint8_t file[4096];
    int64_t tokens;
    struct fs_map m;
    struct data_set h;
    for (int i = 0; i < 100; i++)
        memcpy(body + 12 * i, line, 12);
    CHECK_OK(fs_put("text.txt", body, sizeof body));
    CHECK_OK(data_prepare(&make, &tokens));
    CHECK_OK(fs_map_open(&m, "bytes.tok", ERR_DATA));
    CHECK_OK(data_header_get("bytes.tok", m.data, m.size, &h));
    CHECK(m.size <= (int64_t)sizeof file);
    memcpy(file, m.data, (size_t)m.size);
    snprintf(h.tokenizer, sizeof h.tokenizer, "other");
    data_header_put(&h, file);
    CHECK_OK(fs_put("other.tok", file, m.size));
    CHECK_OK(fs_put("two.csv", costs, sizeof costs - 1));
    CHECK_OK(fs_put("one.csv", list, sizeof list - 1));
    CHECK_OK(fs_put("mini.csv", list, 8));
    fs_map_close(&m);
}

/* The words over the defaults. */
static inline enum err illegal_options(const struct illegal *c, struct options *o)
{
    char words[1024];
    TRY(conf_defaults(&options_table, o));
    TRY(conf_set(&options_table, o, "model.vocab=257"));
    TRY(conf_set(&options_table, o, "train.device=ref")); /* built into every program */
    snprintf(words, sizeof words, "%s", c->set);
    for (char *w = words, *end; *w; w = end) {
        end = w + strcspn(w, " ");
        if (*end)
            *end++ = '\0';
        TRY(conf_set(&options_table, o, w));
    }
    return ERR_OK;
}

static inline enum err illegal_run(const struct illegal *c)
{
    struct options o;
    TRY(illegal_options(c, &o));
    return check_run(&o, c->ranks, c->purpose, NULL, NULL);
}

/* The defaults of this file with words over them, the last NULL. */
static inline struct options with(const char *const *words)
{
    struct options o;
    CHECK_OK(conf_defaults(&options_table, &o));
    CHECK_OK(conf_set(&options_table, &o, "model.vocab=257"));
    CHECK_OK(conf_set(&options_table, &o, "train.device=ref"));
    for (; *words; words++)
        CHECK_OK(conf_set(&options_table, &o, *words));
    return o;
}
#define WITH(...) with((const char *const[]){__VA_ARGS__, NULL})

/* What check says of legal options; mem_free. */
static inline char *report_of(const struct options *o, enum check_for purpose)
{
    struct text t = {0};
    char *s = NULL;
    CHECK_OK(check_run(o, 0, purpose, &t, NULL));
    CHECK_OK(text_done(&t, &s));
    return s ? s : (char *)"";
}

#endif
