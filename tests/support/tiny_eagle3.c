// SPDX-License-Identifier: Apache-2.0
// Random EAGLE-3 drafts; see tiny_gguf.h. By the seed they have a head of some tokens or of all, an
// embedding of another width or the target's, biases, and norms in several places.
#include <stdlib.h>
#include <string.h>

#include "support/tiny_list.h"

static int64_t own_width(const struct tiny_shape *t, const struct tiny_draft_shape *d) {
    return d->seed / 4 % 2 ? 96 : t->dim;
}

static void put_keys(struct gguf_writer *w, const struct tiny_shape *t,
                     const struct tiny_draft_shape *d) {
    static const char a[] = "eagle3";
    int32_t taps[8];
    for (int i = 0; i < d->n_taps; i++)
        taps[i] = d->taps[i] + 1;
    gguf_put_str(w, "general.architecture", a, strlen(a));
    put_u32(w, a, "block_count", 1);
    put_u32(w, a, "context_length", t->context);
    put_u32(w, a, "embedding_length", own_width(t, d));
    put_u32(w, a, "feed_forward_length", d->ffn);
    put_u32(w, a, "attention.head_count", d->heads);
    put_u32(w, a, "attention.head_count_kv", d->kv_heads);
    put_u32(w, a, "attention.key_length", d->head_dim);
    put_u32(w, a, "attention.value_length", d->head_dim);
    put_f32(w, a, "attention.layer_norm_rms_epsilon", 1e-6f);
    put_f32(w, a, "rope.freq_base", 1e4f);
    put_u32(w, a, "target_hidden_size", t->dim);
    put_u32(w, a, "vocab_size", t->vocab);
    gguf_put_array(w, "eagle3.target_layers", GGUF_I32, taps, (uint64_t)d->n_taps);
    gguf_put_bool(w, "eagle3.norm_before_residual", d->seed % 2 != 0);
    gguf_put_bool(w, "eagle3.norm_before_fc", d->seed / 2 % 2 != 0);
    gguf_put_bool(w, "eagle3.norm_output", d->seed % 3 == 0);
}

static void layer_tensors(struct list *l, const struct tiny_draft_shape *d, int64_t dim) {
    const int64_t q = (int64_t)d->heads * d->head_dim, kv = (int64_t)d->kv_heads * d->head_dim;
    vector(l, "blk.0.attn_norm.weight", dim, 1, 1, 0.2f);
    vector(l, "blk.0.attn_norm_2.weight", dim, 1, 1, 0.2f);
    vector(l, "blk.0.ffn_norm.weight", dim, 1, 1, 0.2f);
    matrix(l, "blk.0.attn_q.weight", 2 * dim, q, fan(2 * dim, 1));
    matrix(l, "blk.0.attn_k.weight", 2 * dim, kv, fan(2 * dim, 1));
    matrix(l, "blk.0.attn_v.weight", 2 * dim, kv, fan(2 * dim, 1));
    matrix(l, "blk.0.attn_output.weight", q, dim, fan(q, 2));
    matrix(l, "blk.0.ffn_gate.weight", dim, d->ffn, fan(dim, 1));
    matrix(l, "blk.0.ffn_up.weight", dim, d->ffn, fan(dim, 1));
    matrix(l, "blk.0.ffn_down.weight", d->ffn, dim, fan(d->ffn, 2));
    if (d->biased) {
        vector(l, "blk.0.attn_q.bias", q, 1, 0, 0.5f);
        vector(l, "blk.0.attn_k.bias", kv, 1, 0, 0.5f);
        vector(l, "blk.0.attn_v.bias", kv, 1, 0, 0.5f);
    }
}

int tiny_eagle3_write(const struct tiny_shape *t, const struct tiny_draft_shape *d,
                      const char *path, struct err *e) {
    const int64_t dim = own_width(t, d), read = (int64_t)d->n_taps * t->dim;
    const int64_t tokens = d->seed % 5 && dim == t->dim ? t->vocab : t->vocab / 2;
    struct gguf_writer *w;
    struct list *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, ERR_MEMORY, "no memory for a list of tensors");
    int rc = gguf_writer_open(&w, path, e);
    if (!rc) {
        put_keys(w, t, d);
        l->type = d->type;
        l->seed = d->seed;
        matrix(l, "fc.weight", read, dim, fan(read, 1));
        vector(l, "output_norm.weight", dim, 1, 1, 0.2f);
        if (d->seed / 2 % 2)
            vector(l, "enc.output_norm.weight", read, 1, 1, 0.2f);
        layer_tensors(l, d, dim);
        if (dim != t->dim)
            matrix(l, "token_embd.weight", dim, t->vocab, 1);
        if (tokens < t->vocab) {
            matrix(l, "output.weight", dim, tokens, fan(dim, 3));
            vector(l, "d2t", tokens, 1, 0, 0);
            l->e[l->n - 1].type = TYPE_I64;
        }
        rc = tiny_list_write(w, l, e);
    }
    free(l);
    return rc;
}
