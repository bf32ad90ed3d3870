// SPDX-License-Identifier: Apache-2.0
// Stored checkpoints: bytes are read as they are, and again with all hashes made right, so that the
// checks after them are reached. What is accepted must restore, run a token, and be written as the
// same bytes again.
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "formats/gguf/gguf.h"
#include "models/checkpoint.h"
#include "models/draft/dflash/dflash.h"

enum { ROWS = 4, CONTEXT = 128, MODELS = 2, HEAD = 12 };

static struct exec *cpu;
static struct model *models[MODELS]; // recurrent; attention with a draft
static struct str identities[MODELS];
static struct forest forest;

void fuzz_setup(void) {
    static const char *const paths[] = {FUZZ_CORPUS "/model/target.gguf",
                                        FUZZ_CORPUS "/model/attention.gguf"};
    struct err e = {0};
    struct model_options o = model_options_default();
    struct dflash_options od = dflash_options_default();
    struct dflash *d;
    o.max_rows = o.max_verify = ROWS;
    o.max_seqs = 1;
    o.max_ctx = CONTEXT;
    FUZZ_CHECK(exec_create_cpu(&cpu, "scalar", 1, &e) == 0);
    FUZZ_CHECK(forest_init(&forest, ROWS, &e) == 0);
    for (int i = 0; i < MODELS; i++) {
        struct gguf *g;
        FUZZ_CHECK(gguf_open(&g, paths[i], &e) == 0);
        FUZZ_CHECK(model_load(&models[i], cpu, g, &o, &e) == 0);
    }
    FUZZ_CHECK(dflash_load(&d, models[1], FUZZ_CORPUS "/model/lucebox.gguf", &od, &e) == 0);
    for (int i = 0; i < MODELS; i++)
        model_identity(models[i], model_content(models[i]), &identities[i]);
}

struct bytes {
    const uint8_t *data;
    size_t n, at;
};

static int source(void *arg, void *data, size_t n, struct err *e) {
    struct bytes *b = arg;
    if (n > b->n - b->at)
        return stored_ends_early(e);
    memcpy(data, b->data + b->at, n);
    b->at += n;
    return 0;
}

// Compares with what was read.
static int compare(void *arg, const void *data, size_t n, struct err *e) {
    struct bytes *b = arg;
    (void)e;
    FUZZ_CHECK(n <= b->n - b->at && memcmp(b->data + b->at, data, n) == 0);
    b->at += n;
    return 0;
}

static void use(struct model *m, const struct checkpoint *c, bool fragile) {
    struct sequence *s = NULL;
    struct err e = {0};
    const int32_t next = 1;
    int rc = model_sequence(m, &s, &e);
    if (!rc)
        rc = sequence_restore(s, c, &e);
    if (!rc && checkpoint_len(c) < CONTEXT) {
        forest_reset(&forest);
        forest_chain(&forest, 0, sequence_len(s), &next, 1, true);
        rc = model_forward(m, &forest, &s, 1, &e);
    }
    fuzz_sentence(rc, &e);
    FUZZ_CHECK(fragile || rc == 0);
    sequence_destroy(s);
}

static int try(struct model *m, const uint8_t *data, size_t size, bool again, struct err *e,
               bool fragile) {
    struct checkpoint *c = NULL;
    struct token_tail tail;
    struct bytes b = {data, size, 0};
    struct checkpoint_source from = {source, &b};
    int rc = model_checkpoint_read(m, &c, &tail, &from, e);
    FUZZ_CHECK(!rc == !!c);
    if (rc)
        return rc;
    use(m, c, fragile);
    struct err ignored = {0};
    struct checkpoint_sink to = {compare, &b};
    b.at = 0;
    rc = again ? model_checkpoint_write(m, c, &tail, &to, &ignored) : 0;
    FUZZ_CHECK(fragile || rc == 0);
    checkpoint_destroy(c);
    free(tail.ids);
    return 0;
}

static uint64_t number(const uint8_t *p) {
    uint64_t v = 0;
    for (int i = 0; i < 8; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static void put_number(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

// Makes the hashes of all sections that are there right, and the checkpoint one of model i.
static void rehash(uint8_t *data, size_t size, int i) {
    const struct str *own = &identities[i];
    if (size >= HEAD + 12 + own->len && number(data + HEAD + 4) == own->len)
        memcpy(data + HEAD + 12, own->data, own->len);
    for (size_t at = HEAD; size - at >= 20;) {
        uint64_t n = number(data + at + 4);
        if (n > size - at - 20)
            return;
        put_number(data + at + 12 + n, hash_bytes(data + at, (size_t)n + 12, 0));
        at += (size_t)n + 20;
        if (at > size - 1)
            return;
    }
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct err e = {0};
    int rc = try(models[0], data, size, false, &e, fragile);
    fuzz_result(rc, &e, fragile);
    if (size <= HEAD)
        return;
    uint8_t *copy = malloc(size);
    for (int i = 0; copy && i < MODELS; i++) {
        memcpy(copy, data, size);
        rehash(copy, size, i);
        e = (struct err){0};
        fuzz_sentence(try(models[i], copy, size, i == 1, &e, fragile), &e);
    }
    free(copy);
}
