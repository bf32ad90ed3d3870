// SPDX-License-Identifier: Apache-2.0
// Slots of experts that are lent to a pass (docs/experts.md) for which the host has no memory: the
// pass is refused with a sentence and nothing has changed, so that the next one borrows and gives
// the bits of a model all of whose experts are resident. Long prompts that borrow slots are
// compared on each path by scripts/test_gpu_experts.sh. In the place of calloc the linker puts the
// one of here. Then a model whose slots, and some of whose weights, give their memory back to the
// device, piece by piece, and take it again: afterwards it gives the bits that it gave before.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/suites.h"
#include "ops/experts/store.h"
#include "ops/parking.h"
#include "property/pairs.h"
#include "support/device.h"
#include "support/tiny_gguf.h"

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);

static bool host_is_full;

void *__wrap_calloc(size_t n, size_t bytes) {
    return host_is_full ? NULL : __real_calloc(n, bytes);
}

enum { ROWS = 200, MAX_VOCAB = 512 };

// The logits of the last of ROWS tokens, read in one pass; full: while the host has no memory.
static int last_logits(const struct pair_backend *b, int vocab, bool full, float *out,
                       struct err *e) {
    struct sequence *s = NULL;
    struct forest f;
    int rc = forest_init(&f, ROWS, e);
    if (rc)
        return rc;
    rc = model_sequence(b->model, &s, e);
    int32_t row = forest_chain(&f, 0, 0, &(int32_t){1}, 1, false);
    for (int i = 1; i < ROWS; i++)
        row = forest_add(&f, row, (i * 37 + 11) % vocab, i == ROWS - 1);
    host_is_full = full;
    if (!rc)
        rc = model_forward(b->model, &f, &s, 1, e);
    host_is_full = false;
    if (!rc)
        exec_ops(b->x)->download(b->x, out, model_logits_at(b->model, 0),
                                 (size_t)vocab * sizeof *out);
    sequence_destroy(s);
    forest_fini(&f);
    return rc;
}

// Of one pair. False: it lends nothing.
static bool one_pair(const char *level, int index, struct gpu_counts *n) {
    static float want[MAX_VOCAB], got[MAX_VOCAB];
    struct pair p;
    struct err e = {0}, full = {0};
    int rc = pair_open(&p, index, level, false, &e);
    const struct expert_store *store = rc ? NULL : model_experts(p.b[1].model);
    if (!rc)
        rc = last_logits(&p.b[0], p.vocab, false, want, &e);
    int refused = rc || !store ? 0 : last_logits(&p.b[1], p.vocab, true, got, &full);
    const uint64_t none = store ? expert_store_lent(store).loans : 0;
    if (!rc)
        rc = last_logits(&p.b[1], p.vocab, false, got, &e);
    const uint64_t loans = store ? expert_store_lent(store).loans : 0;
    const bool same = !rc && !memcmp(want, got, (size_t)p.vocab * sizeof *want);
    if (rc || loans)
        gpu_line(n, same && refused == ERR_MEMORY && !none && strstr(full.text, "no host memory"),
                 level, "lending", p.name, "%s; then %s, %s", full.text,
                 rc     ? e.text
                 : same ? "the same bits"
                        : "other bits",
                 loans ? "lent" : "not lent");
    pair_close(&p);
    return loans > 0;
}

// Opens a model with 200 MB of experts, three quarters of which have slots that are lent.
static int open_lender(const char *level, struct pair_backend *b, struct gguf **file, int *vocab,
                       struct err *e) {
    enum { SCORER = 1 << 20, PARKED = 64 << 10 };
    struct model_options o = model_options_default();
    struct tiny_shape t = tiny_shape_plain();
    struct model_plan plan;
    char path[64];
    tiny_shape_experts(&t);
    t.experts = 1024;
    t.expert_ffn = 64;
    *vocab = t.vocab;
    snprintf(path, sizeof path, "/tmp/coppice-lender-%d.gguf", (int)getpid());
    int rc = tiny_target_write(&t, path, e);
    if (!rc)
        rc = gguf_open(file, path, e);
    unlink(path);
    if (!rc)
        rc = device_open(&b->x, level, 0, e);
    if (!rc)
        rc = exec_park_open(b->x, e);
    if (!rc)
        rc = model_plan(&plan, NULL, b->x, *file, &o, e);
    if (rc)
        return rc;
    int64_t least = expert_classes_min(&plan.experts), all = expert_classes_all(&plan.experts);
    rc = expert_classes_share(&plan.experts, (least + 3 * all) / 4, e);
    o.experts = plan.experts;
    o.lending.scorer = SCORER;
    if (!rc)
        rc = model_load(&b->model, b->x, *file, &o, e);
    return rc ? rc : exec_park_finish(b->x, PARKED, e);
}

static int64_t free_memory(struct exec *x) {
    struct exec_memory m;
    exec_memory_of(x, &m);
    return m.free;
}

// Twice, or more often where another program takes what is given back: free memory is the device's.
static void lender(const char *level, struct gpu_counts *n) {
    enum { WANTED = 2, MAX_TRIES = 12 };
    static float want[MAX_VOCAB], got[MAX_VOCAB];
    struct pair_backend b = {0};
    struct gguf *file = NULL;
    struct err e = {0};
    int vocab = 0, same = 0, gave = 0, tries = 0;
    int64_t least = INT64_MAX;
    int rc = open_lender(level, &b, &file, &vocab, &e);
    if (!rc)
        rc = last_logits(&b, vocab, false, want, &e);
    for (; gave < WANTED && tries < MAX_TRIES && !rc; tries++) {
        const int64_t before = free_memory(b.x);
        rc = model_vacate(b.model, &e);
        if (!rc)
            exec_park(b.x);
        const int64_t given = free_memory(b.x) - before;
        least = given < least ? given : least;
        gave += given >= PARK_PIECE;
        if (!rc)
            rc = exec_unpark(b.x, &e);
        if (!rc)
            rc = model_occupy(b.model, &e);
        if (!rc)
            rc = last_logits(&b, vocab, false, got, &e);
        same += !rc && !memcmp(want, got, (size_t)vocab * sizeof *want);
    }
    gpu_line(n, gave == WANTED && same == tries, level, "lending", "memory of slots and weights",
             "%s%d times in %d, %lld MiB at least, %d the same bits", rc ? e.text : "", gave, tries,
             rc ? 0LL : (long long)(least >> 20), same);
    model_destroy(b.model);
    if (file)
        gguf_close(file);
    if (b.x)
        exec_destroy(b.x);
}

void suite_lending(const char *level, const struct gpu_options *o, struct gpu_counts *n) {
    enum { FIRST = 1, STEP = 6, PAIRS = 40 }; // some of those with experts
    int lend = 0;
    (void)o;
    if (!device_level(level))
        return;
    for (int i = FIRST; i < PAIRS && lend < 2; i += STEP)
        lend += one_pair(level, i, n);
    lender(level, n);
    gpu_line(n, lend == 2, level, "lending", "pairs that lend", "%d", lend);
}
