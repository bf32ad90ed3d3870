// SPDX-License-Identifier: Apache-2.0
// See match_scorer.h. The width is one head, so that equal tokens have a logit of sqrt(128) and
// others about 0.
#include "support/match_scorer.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"

enum { WIDTH = 128, FFN = 128 };

enum fill { FILL_RANDOM, FILL_SAME, FILL_ONE, FILL_NONE };

struct item {
    const char *name;
    int64_t rows; // 0: the vocabulary's
    enum fill fill;
};

static const struct item items[] = {
    {"token_embd.weight", 0, FILL_RANDOM},          {"output_norm.weight", 1, FILL_ONE},
    {"blk.0.attn_norm.weight", 1, FILL_ONE},        {"blk.0.attn_q.weight", WIDTH, FILL_SAME},
    {"blk.0.attn_k.weight", WIDTH, FILL_SAME},      {"blk.0.attn_v.weight", WIDTH, FILL_NONE},
    {"blk.0.attn_output.weight", WIDTH, FILL_NONE}, {"blk.0.attn_q_norm.weight", 1, FILL_ONE},
    {"blk.0.attn_k_norm.weight", 1, FILL_ONE},      {"blk.0.ffn_norm.weight", 1, FILL_ONE},
    {"blk.0.ffn_gate.weight", FFN, FILL_NONE},      {"blk.0.ffn_up.weight", FFN, FILL_NONE},
    {"blk.0.ffn_down.weight", WIDTH, FILL_NONE},
};
enum { ITEMS = sizeof items / sizeof *items };

static void put_keys(struct gguf_writer *w, const struct gguf *g) {
    static const struct {
        const char *key;
        int64_t value;
    } counts[] = {{"qwen3.block_count", 1},
                  {"qwen3.context_length", 4096},
                  {"qwen3.embedding_length", WIDTH},
                  {"qwen3.feed_forward_length", FFN},
                  {"qwen3.attention.head_count", 1},
                  {"qwen3.attention.head_count_kv", 1},
                  {"qwen3.attention.key_length", WIDTH},
                  {"qwen3.attention.value_length", WIDTH}};
    gguf_put_str(w, "general.architecture", "qwen3", 5);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        gguf_put_int(w, counts[i].key, GGUF_U32, counts[i].value);
    gguf_put_f32(w, "qwen3.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_put_f32(w, "qwen3.rope.freq_base", 1e6f);
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        if (!strncmp(gguf_kv_at(g, i)->key, "tokenizer.ggml.", 15))
            gguf_put_kv(w, gguf_kv_at(g, i));
}

static int write_item(struct gguf_writer *w, const struct item *t, int64_t rows, struct err *e) {
    float row[WIDTH];
    struct rng r = {17};
    int rc = 0;
    for (int64_t i = 0; i < rows && !rc; i++) {
        for (int64_t k = 0; k < WIDTH; k++)
            row[k] = t->fill == FILL_RANDOM ? (float)rng_below(&r, 2001) / 1000 - 1
                     : t->fill == FILL_SAME ? i == k
                                            : t->fill == FILL_ONE;
        rc = gguf_write_data(w, row, sizeof row, e);
    }
    return rc;
}

int match_scorer_write(const char *path, const char *tokenizer, struct err *e) {
    struct gguf *g;
    struct gguf_writer *w;
    int rc = gguf_open(&g, tokenizer, e);
    if (rc)
        return rc;
    rc = gguf_writer_open(&w, path, e);
    if (rc) {
        gguf_close(g);
        return rc;
    }
    const struct gguf_kv *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    int64_t vocab = tokens ? (int64_t)tokens->count : 0;
    put_keys(w, g);
    gguf_close(g);
    for (int i = 0; i < ITEMS; i++) {
        int64_t ne[2] = {WIDTH, items[i].rows ? items[i].rows : vocab};
        gguf_add_tensor(w, items[i].name, TYPE_F32, ne[1] > 1 ? 2 : 1, ne);
    }
    for (int i = 0; i < ITEMS && !rc; i++)
        rc = write_item(w, &items[i], items[i].rows ? items[i].rows : vocab, e);
    if (!rc)
        return gguf_writer_close(w, e);
    gguf_writer_abort(w);
    return rc;
}
