// SPDX-License-Identifier: Apache-2.0
// See bad_files.h.
#include "unit/bad_files.h"

#include <stdio.h>

#include "support/tiny_rig.h"
#include "unit/test.h"

void put_key(struct gguf_writer *w, const struct edit *d) {
    if (d->kind == GGUF_F32)
        gguf_put_f32(w, d->key, (float)d->number);
    else if (d->kind == GGUF_STRING)
        gguf_put_str(w, d->key, d->text, strlen(d->text));
    else if (d->kind == GGUF_BOOL)
        gguf_put_bool(w, d->key, d->value != 0);
    else if (d->kind == GGUF_ARRAY)
        gguf_put_array(w, d->key, GGUF_I32, d->list, (uint64_t)d->value);
    else if (d->kind >= 0)
        gguf_put_int(w, d->key, d->kind, d->value);
}

// The tensor as the edit leaves it; false when it is dropped.
static bool edited(struct tensor *t, const struct edit *d) {
    if (!d->tensor || strcmp(t->name, d->tensor) != 0)
        return true;
    if (!d->name && !d->rows)
        return false;
    if (d->name)
        t->name = d->name;
    if (d->rows) {
        t->bytes = t->bytes / t->ne[1] * d->rows;
        t->ne[1] = d->rows;
    }
    return true;
}

void copy_tensors(const struct gguf *g, struct gguf_writer *w, const struct edit *d) {
    struct err e;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < gguf_tensor_count(g); i++) {
            struct tensor t = *gguf_tensor_at(g, i);
            if (!edited(&t, d))
                continue;
            if (pass == 0)
                gguf_add_tensor(w, t.name, t.type, t.n_dims, t.ne);
            else
                assert_int_equal(gguf_write_data(w, t.data, (size_t)t.bytes, &e), 0);
        }
    }
    assert_int_equal(gguf_writer_close(w, &e), 0);
}

void rewrite(const char *in, const char *out, const struct edit *d) {
    struct gguf *g;
    struct gguf_writer *w;
    struct err e;
    assert_int_equal(gguf_open(&g, in, &e), 0);
    assert_int_equal(gguf_writer_open(&w, out, &e), 0);
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        if (!d->key || strcmp(gguf_kv_at(g, i)->key, d->key) != 0)
            gguf_put_kv(w, gguf_kv_at(g, i));
    }
    if (d->key)
        put_key(w, d);
    copy_tensors(g, w, d);
    gguf_close(g);
}

void refuse_each(struct tiny_shape shape, const struct bad *list, size_t n) {
    struct tiny_rig r;
    shape.nextn = 1; // so that there are tensors which no check misses
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    struct model_options o = model_options_default();
    o.max_rows = o.max_verify = 32;
    for (size_t i = 0; i < n; i++) {
        const struct bad *b = &list[i];
        struct model *m = NULL;
        struct model_plan p;
        struct gguf *g;
        rewrite(r.target_path, r.draft_path, &b->edit);
        assert_int_equal(gguf_open(&g, r.draft_path, &r.e), 0);
        int code = model_load(&m, r.x, g, &o, &r.e);
        if (code != b->code || (code && !strstr(r.e.text, b->word)))
            fail_msg("case %zu (%s): %d, \"%s\"", i, b->word, code, code ? r.e.text : "");
        assert_int_equal(model_plan(&p, NULL, NULL, g, &o, &r.e), b->code);
        assert_true(code || p.weights > 0);
        model_destroy(m);
        gguf_close(g);
    }
    tiny_rig_close(&r);
}
