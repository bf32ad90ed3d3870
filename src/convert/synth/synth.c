// SPDX-License-Identifier: Apache-2.0
// Writes a synthetic model: all threads fill the mapped file, tensor by tensor, and memory does not
// grow with the model. A target's vocabulary lets texts be sent and answers read: a token for each
// byte, in the spelling of byte-level vocabularies, and words " w256", " w257", ... for all others.
// There are no merges, so that a text has as many tokens as bytes, and no token ends a text.
#include "convert/synth/synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "convert/synth/fill.h"
#include "convert/synth/tensors.h"
#include "formats/quant/quant.h"

enum { BYTES = 256, TEXT = 12 }; // of a token's text with its NUL

// The byte map of GPT-2: bytes that print in Latin-1 stand for themselves, the other 68 are
// U+0100 .. in order.
static uint32_t byte_code_point(int byte) {
    uint32_t code = 0x100;
    for (int b = 0; b <= byte; b++) {
        bool prints = (b > 32 && b < 127) || (b > 160 && b != 173);
        if (b == byte)
            return prints ? (uint32_t)b : code;
        code += !prints;
    }
    return code;
}

// Writes a vocabulary of n tokens, n >= 256, whose texts are cut as `pre` says. ERR_MEMORY.
static int put_vocabulary(struct gguf_writer *w, int64_t n, const char *pre, struct err *e) {
    char(*texts)[TEXT] = calloc((size_t)n, sizeof *texts);
    const char **tokens = calloc((size_t)n, sizeof *tokens);
    int32_t *types = calloc((size_t)n, sizeof *types);
    size_t *lengths = calloc((size_t)n, sizeof *lengths);
    int rc = texts && tokens && types && lengths
                 ? 0
                 : err_set(e, ERR_MEMORY, "no memory for a vocabulary of %lld", (long long)n);
    for (int64_t i = 0; !rc && i < n; i++) {
        tokens[i] = texts[i];
        types[i] = 1; // normal
        if (i < BYTES)
            utf8_encode(texts[i], byte_code_point((int)i)); // a NUL follows already
        else
            snprintf(texts[i], sizeof texts[i], "\xC4\xA0w%u", (unsigned)i % 100000000u);
        lengths[i] = strlen(texts[i]);
    }
    if (!rc) {
        gguf_put_str(w, "tokenizer.ggml.model", "gpt2", 4);
        gguf_put_str(w, "tokenizer.ggml.pre", pre, strlen(pre));
        gguf_put_str_array(w, "tokenizer.ggml.tokens", tokens, lengths, (uint64_t)n);
        gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, (uint64_t)n);
        gguf_put_str_array(w, "tokenizer.ggml.merges", tokens, lengths, 0);
    }
    free(texts);
    free(tokens);
    free(types);
    free(lengths);
    return rc;
}

enum { SHARE = 256 << 10 }; // bytes that a thread takes at once

struct job {
    const struct synth_options *o;
    struct gguf_writer *writer;
    struct pool *pool;
    struct synth_list list;
    struct synth_fill *fill;
    unsigned char **places; // [list.n]
    unsigned char *place;   // of the tensor being filled
    int64_t block_bytes;
    int64_t done, total; // bytes
};

static int64_t tensor_size(const struct synth_tensor *t) {
    return quant_row_bytes(quant_format(t->type), t->ne[0]) * t->ne[1] * t->ne[2];
}

static int64_t block_bytes_of(uint32_t type) {
    const struct quant_format *f = quant_format(type);
    return synth_block(type) / f->block * f->bytes;
}

static void fill_share(void *arg, int64_t begin, int64_t end, int worker) {
    struct job *j = arg;
    (void)worker;
    synth_fill_blocks(j->fill, begin, end - begin, j->place + begin * j->block_bytes);
}

static int fill_tensor(struct job *j, int i, struct err *e) {
    const struct synth_tensor *t = &j->list.items[i];
    if (!synth_fill_init(j->fill, t, rng_hash(j->o->seed, (uint64_t)i, 0, 0)))
        return err_set(e, ERR_UNSUPPORTED, "tensor %s cannot be made in type %s; use another type",
                       t->name, quant_format(t->type)->name);
    j->place = j->places[i];
    j->block_bytes = block_bytes_of(t->type);
    int64_t blocks = ceil_div(tensor_size(t), j->block_bytes);
    pool_run(j->pool, blocks, SHARE / j->block_bytes, fill_share, j);
    j->done += tensor_size(t);
    if (j->o->progress && j->o->progress(j->o->progress_arg, t->name, j->done, j->total))
        return err_set(e, ERR_STATE, "stopped after tensor '%s'; nothing was written", t->name);
    return 0;
}

static int describe_model(struct job *j, struct err *e) {
    struct synth_shape cut = *j->o->shape;
    const struct synth_shape *s = &cut;
    if (j->o->layers > cut.layers)
        return err_set(e, ERR_USAGE, "the shape %s has %d layers, so there are no first %d",
                       cut.name, cut.layers, j->o->layers);
    cut.layers = j->o->layers ? j->o->layers : cut.layers;
    synth_tensors(&j->list, s, j->o->recipe);
    j->fill = malloc(sizeof *j->fill);
    j->places = calloc((size_t)j->list.n + 1, sizeof *j->places);
    if (j->list.failed || !j->fill || !j->places)
        return err_set(e, ERR_MEMORY, "no memory to make a file of random weights");
    synth_metadata(j->writer, s, j->o->recipe);
    int rc = s->draft ? 0 : put_vocabulary(j->writer, s->vocab, synth_pre(s), e);
    if (rc)
        return rc;
    for (int i = 0; i < j->list.n; i++) {
        const struct synth_tensor *t = &j->list.items[i];
        gguf_add_tensor(j->writer, t->name, t->type, t->n_dims, t->ne);
        j->total += tensor_size(t);
    }
    return gguf_writer_map(j->writer, j->places, e);
}

int synth_write(const char *out, const struct synth_options *o, struct err *e) {
    struct job j = {.o = o};
    int rc = pool_create(&j.pool, o->threads, e);
    if (rc)
        return rc;
    rc = gguf_writer_open(&j.writer, out, e);
    if (!rc)
        rc = describe_model(&j, e);
    for (int i = 0; !rc && i < j.list.n; i++)
        rc = fill_tensor(&j, i, e);
    if (!rc) {
        rc = gguf_writer_close(j.writer, e);
        j.writer = NULL;
    }
    gguf_writer_abort(j.writer);
    free(j.places);
    free(j.fill);
    free(j.list.items);
    pool_destroy(j.pool);
    return rc;
}
