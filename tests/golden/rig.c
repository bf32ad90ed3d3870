// SPDX-License-Identifier: Apache-2.0
// Set-up and tear-down shared by the golden tests, and a prompt pass. Errors fail the test at once.
#include "golden/rig.h"

#include "formats/quant/quant.h"
#include "unit/test.h"

static void check(int rc, const char *what, const struct err *e) {
    if (rc != 0)
        fail_msg("%s: %s (code %d)", what, e->text, rc);
}

void rig_load(struct rig *r, const char *path) {
    struct err e = {0};
    struct model_options o = model_options_default();
    o.codec_k = o.codec_v = KV_F32;
    o.max_ctx = 256;
    o.max_rows = 256;
    o.max_verify = 256; // also the most logits of one pass
    check(gguf_open(&r->file, path, &e), "gguf_open", &e);
    check(model_load(&r->m, r->x, r->file, &o, &e), "model_load", &e);
}

void rig_unload(struct rig *r) {
    model_destroy(r->m);
    gguf_close(r->file);
}

void rig_init(struct rig *r, const char *name) {
    struct err e = {0};
    memset(r, 0, sizeof *r);
    check(golden_load(&r->g, TEST_DATA "/golden/data", name, &e), "golden_load", &e);
    check(golden_files_make(&r->files, &r->g, &e), "golden_files_make", &e);
    check(exec_create_cpu(&r->x, "auto", 2, &e), "exec_create_cpu", &e);
    rig_load(r, r->files.gguf);
    check(forest_init(&r->f, 256, &e), "forest_init", &e);
}

void rig_fini(struct rig *r) {
    forest_fini(&r->f);
    rig_unload(r);
    exec_destroy(r->x);
    golden_files_fini(&r->files);
    golden_fini(&r->g);
}

struct sequence *rig_sequence(struct rig *r) {
    struct sequence *s = NULL;
    struct err e = {0};
    check(model_sequence(r->m, &s, &e), "model_sequence", &e);
    return s;
}

void rig_download(struct rig *r, float *dst, const float *src, int64_t n) {
    size_t bytes = (size_t)(n * r->g.target.vocab) * sizeof *dst;
    exec_ops(r->x)->download(r->x, dst, src, bytes);
}

void rig_shift_ids(struct rig *r, int from, int by) {
    for (int i = from; i < r->g.n_ids; i++)
        r->g.ids[i] = (r->g.ids[i] + by + r->g.target.vocab) % r->g.target.vocab;
}

void rig_prompt(struct rig *r, struct sequence *s, int from, int to, float *rows) {
    struct err e = {0};
    assert_int_equal(sequence_len(s), from);
    forest_reset(&r->f);
    int32_t row = forest_chain(&r->f, 0, from, &r->g.ids[from], 1, rows != NULL);
    for (int i = from + 1; i < to; i++)
        row = forest_add(&r->f, row, r->g.ids[i], rows != NULL);
    assert_int_equal(row, to - from - 1);
    check(model_forward(r->m, &r->f, &s, 1, &e), "model_forward", &e);
    assert_int_equal(sequence_len(s), to);
    if (!rows)
        return;
    assert_int_equal(model_wanted(r->m), to - from);
    for (int i = from; i < to; i++)
        rig_download(r, rows + (int64_t)i * r->g.target.vocab, model_logits_at(r->m, i - from), 1);
}
