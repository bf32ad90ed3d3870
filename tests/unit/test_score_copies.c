// SPDX-License-Identifier: Apache-2.0
// The model scorer on a device that is behind: memory that was taken is cleared by the queue of
// ops, as late as it may be, and copies that do not wait for that queue come before it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "compress/score/score.h"
#include "ops/exec.h"
#include "support/copies.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

enum { BLOCKS = 256, SHORT = 128 * 2 + 5, LONG = 128 * 4 + 40, QUERIES = 9 };

// Memory of the device, and whether its zeros are still to come.
static struct {
    unsigned char *p;
    size_t bytes;
    bool zeros;
} blocks[BLOCKS];
static const struct ops *plain;

static void *take(struct exec *x, size_t bytes) {
    void *p = plain->alloc(x, bytes);
    for (int i = 0; p && i < BLOCKS; i++)
        if (!blocks[i].p) {
            blocks[i].p = p;
            blocks[i].bytes = bytes;
            blocks[i].zeros = true;
            return p;
        }
    abort();
}

static void give(struct exec *x, void *p) {
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].p == p)
            blocks[i].p = NULL;
    plain->free(x, p);
}

static void after_compute(struct copy_queue *q) {
    (void)q;
    for (int i = 0; i < BLOCKS; i++)
        blocks[i].zeros = false;
}

static void copy(struct copy_queue *q, void *dst, const void *src, size_t bytes, uint64_t ticket,
                 bool to_host) {
    const unsigned char *at = dst;
    (void)q;
    (void)ticket;
    memcpy(dst, src, bytes);
    for (int i = 0; i < BLOCKS && !to_host; i++)
        if (blocks[i].p && blocks[i].zeros && at >= blocks[i].p &&
            at < blocks[i].p + blocks[i].bytes)
            memset(dst, 0, bytes);
}

// Scores of two texts, the longer one second, by a scorer of its own.
static void score_both(struct exec *x, const struct gguf *g, const int32_t *ids,
                       float (*out)[LONG]) {
    static const int64_t lengths[] = {SHORT, LONG};
    struct score_options o = score_options_default();
    struct scorer *s = NULL;
    struct err e = {0};
    o.chunk = 128;
    assert_int_equal(score_open(&s, x, g, &o, &e), 0);
    for (int i = 0; i < 2; i++) {
        const struct score_call call = {ids, lengths[i], lengths[i] - QUERIES, out[i]};
        assert_int_equal(s->kind->score(s, &call, &e), 0);
    }
    s->kind->destroy(s);
}

static void test_copies_wait(void **state) {
    static float want[2][LONG], got[2][LONG];
    static int32_t ids[LONG];
    struct tiny_shape shape = tiny_shape_plain();
    struct rng r = {11};
    struct exec *x;
    struct gguf *g;
    struct err e = {0};
    char path[96];
    (void)state;
    shape.layers = 2;
    snprintf(path, sizeof path, "/tmp/test_score_copies.%d.gguf", (int)getpid());
    assert_int_equal(tiny_target_write(&shape, path, &e), 0);
    assert_int_equal(gguf_open(&g, path, &e), 0);
    assert_int_equal(exec_create_cpu(&x, "auto", 1, &e), 0);
    for (int i = 0; i < LONG; i++)
        ids[i] = (int32_t)rng_below(&r, 250);
    score_both(x, g, ids, want);
    plain = x->ops;
    struct ops late = *plain;
    late.alloc = take;
    late.free = give;
    struct copy_backend delayed = copies_at_once();
    delayed.after_compute = after_compute;
    delayed.copy = copy;
    x->ops = &late;
    x->copies = &delayed;
    score_both(x, g, ids, got);
    x->copies = NULL;
    x->ops = plain;
    assert_memory_equal(got, want, sizeof want);
    assert_true(want[1][LONG / 2] > 0);
    exec_destroy(x);
    gguf_close(g);
    remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies_wait)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
