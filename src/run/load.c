/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights from a safetensors file into any layout: every rank maps the file and reads its own
 * boxes. Each tensor that the model needs must be there in the model's shape; a parameter that no
 * tensor fills is an error, never left as it was, and so is a file of a larger model.
 */
#include "run/train.h"

#include "ckpt/ckpt.h"

static double element(const struct safet_entry *e, const uint8_t *data, int64_t i)
{
    float f;
    double d;
    uint16_t h;
    switch (e->dt) {
    case DT_F64: memcpy(&d, data + i * 8, 8); return d;
    case DT_F32: memcpy(&f, data + i * 4, 4); return (double)f;
    default: memcpy(&h, data + i * 2, 2); return (double)bf16_to_f32(h);
    }
}

static enum err load_param(const struct setup *s, const struct safet_file *f, const struct param *p)
{
    struct hf_place at;
    const struct safet_entry *e;
    double *values;
    hf_place(&s->arch, &p->spec, &at);
    TRY(hf_find(f, &at, &e));
    TRY(mem_new(p->count, sizeof *values, p->spec.name, &values));
    int64_t cols = at.nd == 2 ? at.shape[1] : 1;
    for (int64_t i = 0; i < p->box.real[0]; i++)
        for (int64_t j = 0; j < p->box.real[1]; j++) {
            int64_t r = at.out0 + p->box.at[0] + i, c = p->box.at[1] + j;
            values[i * p->box.local[1] + j] =
                element(e, f->data + e->begin, at.transposed ? c * cols + r : r * cols + c);
        }
    enum err err = param_write(p, values);
    mem_free(values);
    return err;
}

enum err load_weights(const struct setup *s, struct exec *x, const char *dir)
{
    struct safet_file f;
    char *path;
    TRY(fs_join(dir, "model.safetensors", &path));
    enum err err = safet_open(&f, path);
    mem_free(path);
    TRY(err);
    err = hf_check_rest(&f, &s->arch);
    for (int i = 0; i < exec_stage_count(x) && err == ERR_OK; i++) {
        const struct param_store *store = &exec_stage_at(x, i)->params;
        for (int j = 0; j < store->n && err == ERR_OK; j++)
            err = load_param(s, &f, &store->param[j]);
    }
    safet_close(&f);
    return err;
}
