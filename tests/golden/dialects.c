// SPDX-License-Identifier: Apache-2.0
// Three programs store DFlash drafts under different names; the numbers are the same. Here the
// names of the two older dialects are written from hyper-parameters and the data copied over.
#include "golden/dialects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"

struct renamed {
    const char *from, *lucebox, *beellama;
};

static const struct renamed renames[] = {
    {"fc.weight", "dflash.fc.weight", "dflash_fc.weight"},
    {"enc.output_norm.weight", "dflash.hidden_norm.weight", "dflash_hidden_norm.weight"},
};

// Norms of taps: one tensor of rows upstream, one tensor each in the others.
static const char tap_norms[] = "enc.aux_norm.weight";

// The dialect's name of an upstream tensor, in buffer when it has to be built.
static const char *rename_tensor(enum dialect to, const char *name, char *buffer, size_t size) {
    for (size_t i = 0; i < sizeof renames / sizeof *renames; i++)
        if (strcmp(name, renames[i].from) == 0)
            return to == DIALECT_LUCEBOX ? renames[i].lucebox : renames[i].beellama;
    const char *dot = strstr(name, ".ffn_norm.weight");
    if (to == DIALECT_LUCEBOX || !dot)
        return name;
    (void)snprintf(buffer, size, "%.*s.post_attention_norm.weight", (int)(dot - name), name);
    return buffer;
}

struct keys {
    struct gguf_writer *w;
    const char *arch;
};

static const char *full_key(const struct keys *k, const char *name, char buffer[128]) {
    (void)snprintf(buffer, 128, "%s.%s", k->arch, name);
    return buffer;
}

static void put_u32(const struct keys *k, const char *name, int64_t v) {
    char key[128];
    gguf_put_int(k->w, full_key(k, name, key), GGUF_U32, v);
}

static void put_shape(const struct keys *k, const struct tiny_target *t,
                      const struct tiny_draft *d) {
    char key[128];
    put_u32(k, "context_length", 4096);
    put_u32(k, "embedding_length", t->hidden);
    put_u32(k, "block_count", d->layers);
    put_u32(k, "feed_forward_length", d->ffn);
    put_u32(k, "attention.head_count", d->heads);
    put_u32(k, "attention.head_count_kv", d->kv_heads);
    put_u32(k, "attention.key_length", d->head_dim);
    put_u32(k, "attention.value_length", d->head_dim);
    gguf_put_f32(k->w, full_key(k, "attention.layer_norm_rms_epsilon", key), 1e-6f);
    gguf_put_f32(k->w, full_key(k, "rope.freq_base", key), (float)d->rope);
}

static void put_draft(const struct keys *k, enum dialect to, const struct tiny_target *t,
                      const struct tiny_draft *d) {
    char key[128];
    int32_t taps[TINY_MAX_LAYERS];
    unsigned char pattern[TINY_MAX_LAYERS];
    int window = 0;
    for (int i = 0; i < d->n_taps; i++)
        taps[i] = d->taps[i]; // 0-based in both
    for (int i = 0; i < d->layers; i++) {
        pattern[i] = d->windows[i] > 0;
        window = d->windows[i] > window ? d->windows[i] : window;
    }
    gguf_put_array(k->w, full_key(k, "dflash.target_layer_ids", key), GGUF_I32, taps,
                   (uint64_t)d->n_taps);
    put_u32(k, "dflash.block_size", d->block);
    put_u32(k, "dflash.mask_token_id", d->mask);
    if (window) {
        put_u32(k, "attention.sliding_window", window);
        gguf_put_array(k->w, full_key(k, "attention.sliding_window_pattern", key), GGUF_BOOL,
                       pattern, (uint64_t)d->layers);
    }
    if (to == DIALECT_LUCEBOX) {
        put_u32(k, "dflash.n_target_layers", d->n_taps);
        put_u32(k, "vocab_size", t->vocab);
    } else {
        put_u32(k, "dflash.n_target_features", (int64_t)d->n_taps * t->hidden);
        put_u32(k, "rope.dimension_count", d->head_dim);
        gguf_put_bool(k->w, full_key(k, "attention.causal", key), false); // always written so
    }
}

// What drafts of some targets have besides the plain form goes by the same keys; only Laguna's kind
// has a flag instead of a name.
static void put_form(const struct keys *k, enum dialect to, const struct gguf *g) {
    static const char *const same[] = {"rope.scaling.", "final_logit_softcapping", "logit_scale"};
    char key[128];
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        const char *suffix = strncmp(kv->key, "dflash.", 7) == 0 ? kv->key + 7 : "";
        for (size_t j = 0; j < sizeof same / sizeof *same; j++) {
            struct gguf_kv own = *kv;
            if (strncmp(suffix, same[j], strlen(same[j])) != 0)
                continue;
            own.key = full_key(k, suffix, key);
            gguf_put_kv(k->w, &own);
        }
    }
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        struct gguf_kv own = *gguf_kv_at(g, i);
        if (strncmp(own.key, "dflash.domino.", 14) != 0 || strstr(own.key, "prefix_len") ||
            strstr(own.key, "shift_label"))
            continue; // of Lucebox's drafts all guesses are corrected
        own.key = full_key(k, own.key, key);
        gguf_put_kv(k->w, &own);
    }
    if (gguf_find(g, "dflash.decoder_arch"))
        gguf_put_bool(
            k->w,
            full_key(k, to == DIALECT_LUCEBOX ? "dflash.context_kv_layer_norm" : "dflash.laguna",
                     key),
            true);
}

static void add_tensor(const struct keys *k, enum dialect to, const struct tensor *t) {
    char name[128];
    if (strcmp(t->name, tap_norms) != 0) {
        gguf_add_tensor(k->w, rename_tensor(to, t->name, name, sizeof name), t->type, t->n_dims,
                        t->ne);
        return;
    }
    for (int64_t i = 0; i < t->ne[1]; i++) { // whose values follow each other all the same
        (void)snprintf(name, sizeof name,
                       to == DIALECT_LUCEBOX ? "dflash.aux_hidden_norm.%d.weight"
                                             : "dflash_aux_hidden_norm.%d.weight",
                       (int)i);
        gguf_add_tensor(k->w, name, t->type, 1, t->ne);
    }
}

// What Domino drafts have in Lucebox's files alone: biases, and the state that the unit begins
// with.
static const struct zeros {
    const char *name, *of; // as many as that tensor has rows, or its first dimension
    int dim;
} zeros[] = {{"dflash.domino.start", "dflash.domino.gru.weight_hh", 0},
             {"dflash.domino.gru.bias_ih", "dflash.domino.gru.weight_ih", 1},
             {"dflash.domino.gru.bias_hh", "dflash.domino.gru.weight_hh", 1},
             {"dflash.domino.head.b1", "dflash.domino.head.w1", 1},
             {"dflash.domino.head.b2", "dflash.domino.head.w2", 1}};
enum { ZEROS = sizeof zeros / sizeof *zeros };

// Lists them, or writes their data.
static int put_zeros(struct gguf_writer *w, const struct gguf *g, bool data, struct err *e) {
    int rc = 0;
    for (int i = 0; rc == 0 && i < ZEROS && gguf_tensor(g, zeros[i].of); i++) {
        const int64_t n = gguf_tensor(g, zeros[i].of)->ne[zeros[i].dim], ne[4] = {n, 1, 1, 1};
        float *none = data ? calloc((size_t)n, sizeof *none) : NULL;
        if (!data)
            gguf_add_tensor(w, zeros[i].name, TYPE_F32, 1, ne);
        else
            rc = none ? gguf_write_data(w, none, (size_t)n * sizeof *none, e)
                      : err_set(e, ERR_MEMORY, "no memory for zeros");
        free(none);
    }
    return rc;
}

static int copy_data(struct gguf_writer *w, const struct gguf *g, struct err *e) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        size_t n = strcmp(t->name, tap_norms) == 0 ? (size_t)t->ne[1] : 1;
        for (size_t j = 0; rc == 0 && j < n; j++)
            rc = gguf_write_data(w, (const char *)t->data + (size_t)t->bytes / n * j,
                                 (size_t)t->bytes / n, e);
    }
    return rc;
}

static void put_metadata(const struct keys *k, enum dialect to, const struct gguf *g,
                         const struct tiny_target *t, const struct tiny_draft *d) {
    gguf_put_str(k->w, "general.architecture", k->arch, strlen(k->arch));
    put_shape(k, t, d);
    put_draft(k, to, t, d);
    put_form(k, to, g);
    for (size_t i = 0; to == DIALECT_BEELLAMA && i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i); // this dialect carries the target's tokenizer
        if (strncmp(kv->key, "tokenizer.", 10) == 0 && !strstr(kv->key, "mask_token_id"))
            gguf_put_kv(k->w, kv);
    }
}

int dialect_write(enum dialect to, const char *in, const char *out, const struct tiny_target *t,
                  const struct tiny_draft *d, struct err *e) {
    struct gguf *g = NULL;
    struct keys k = {.arch = to == DIALECT_LUCEBOX ? "qwen35-dflash-draft" : "dflash-draft"};
    int rc = gguf_open(&g, in, e);
    if (rc == 0)
        rc = gguf_writer_open(&k.w, out, e);
    if (rc != 0)
        goto out;
    put_metadata(&k, to, g, t, d);
    for (size_t i = 0; i < gguf_tensor_count(g); i++)
        add_tensor(&k, to, gguf_tensor_at(g, i));
    rc = put_zeros(k.w, g, false, e);
    if (rc == 0)
        rc = copy_data(k.w, g, e);
    if (rc == 0)
        rc = put_zeros(k.w, g, true, e);
    if (rc == 0)
        rc = gguf_writer_close(k.w, e);
    else
        gguf_writer_abort(k.w);
out:
    gguf_close(g);
    return rc;
}
