// SPDX-License-Identifier: Apache-2.0
// Stored checkpoints: bytes are read as they are, and again with all hashes made right, so that the
// checks after them are reached. What is accepted must restore, run a token, and be written and
// read again.
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

static int grow(void *arg, const void *data, size_t n, struct err *e) {
    struct str *s = arg;
    str_append(s, data, n);
    return s->failed ? err_set(e, ERR_MEMORY, "no memory") : 0;
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

static int load(struct model *m, const uint8_t *data, size_t size, struct checkpoint **c,
                struct token_tail *tail, struct err *e) {
    struct bytes b = {data, size, 0};
    const struct record_source from = {source, &b, (int64_t)size};
    *c = NULL;
    int rc = model_checkpoint_read(m, c, tail, &from, e);
    FUZZ_CHECK(!rc == !!*c);
    return rc;
}

static int save(struct model *m, const struct checkpoint *c, const struct token_tail *tail,
                struct str *out) {
    const struct record_sink to = {.sink = grow, .arg = out};
    struct err ignored = {0};
    return model_checkpoint_write(m, c, tail, &to, &ignored);
}

// Slots of pages that are not used may hold anything, but not in what is written here: what is read
// from that is written as the same bytes.
static void twice(struct model *m, const struct checkpoint *c, const struct token_tail *tail,
                  bool fragile) {
    struct str first = {0}, second = {0};
    struct checkpoint *d = NULL;
    struct token_tail same = {0};
    struct err ignored = {0};
    int rc = save(m, c, tail, &first);
    if (!rc)
        rc = load(m, (const uint8_t *)first.data, first.len, &d, &same, &ignored);
    if (!rc)
        rc = save(m, d, &same, &second);
    FUZZ_CHECK(fragile || rc == 0);
    FUZZ_CHECK(rc || (first.len == second.len && !memcmp(first.data, second.data, first.len)));
    checkpoint_destroy(d);
    free(same.ids);
    str_fini(&first);
    str_fini(&second);
}

static int try(struct model *m, const uint8_t *data, size_t size, bool again, struct err *e,
               bool fragile) {
    struct checkpoint *c;
    struct token_tail tail;
    int rc = load(m, data, size, &c, &tail, e);
    if (rc)
        return rc;
    use(m, c, fragile);
    if (again)
        twice(m, c, &tail, fragile);
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

static void rehash_section(uint8_t *data, size_t at) {
    uint64_t n = number(data + at + 4);
    put_number(data + at + 12 + n, hash_bytes(data + at, (size_t)n + 12, 0));
}

// Makes the sums of rest and pages right, and the key of the text, of a head that can be read.
static void rehash_data(uint8_t *data, size_t size, size_t head, size_t sums) {
    struct bytes b = {data, size, 0};
    const struct record_source from = {source, &b, (int64_t)size};
    struct record r;
    if (record_read(&r, &from, NULL))
        return;
    size_t at = (size_t)r.data + r.rest_bytes, i = 1;
    put_number(data + sums + 12, hash_bytes(data + r.data, r.rest_bytes, 0));
    for (int g = 0; g < r.n_groups; g++)
        for (int64_t k = r.groups[g].own; k * KV_PAGE < r.groups[g].len; k++) {
            size_t page = (size_t)r.groups[g].page_bytes;
            put_number(data + sums + 12 + 8 * i++, hash_bytes(data + at, page, 0));
            at += page;
        }
    put_number(data + head + 20, record_key(r.kind, r.tokens, r.len, r.sparse_end));
    rehash_section(data, head);
    rehash_section(data, sums);
    record_fini(&r);
}

// Makes the hashes of all sections that are there right, and the checkpoint one of model i.
static void rehash(uint8_t *data, size_t size, int i) {
    const struct str *own = &identities[i];
    size_t at = HEAD, head = 0;
    if (size >= HEAD + 12 + own->len && number(data + HEAD + 4) == own->len)
        memcpy(data + HEAD + 12, own->data, own->len);
    for (int section = 0; section < 5 && size - at >= 20; section++) {
        uint64_t n = number(data + at + 4);
        if (n > size - at - 20)
            return;
        if (section == 1) {
            head = at;
            if (n >= 16)
                put_number(data + at + 12, size);
        }
        rehash_section(data, at);
        if (section == 4)
            rehash_data(data, size, head, at);
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
