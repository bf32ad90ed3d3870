// SPDX-License-Identifier: Apache-2.0
// Copies where memory is the host's: done at once, counted memory; and where a backend has a queue
// of its own: its calls, in which order, and its failures. The queue of a GPU is tested
// in tests/gpu/test_copies.c.
#include "test.h"

#include <stdlib.h>

#include "ops/copier.h"
#include "ops/exec.h"

static struct exec *open_cpu(void) {
    struct exec *x = NULL;
    struct err e = {0};
    assert_int_equal(exec_create_cpu(&x, "scalar", 1, &e), 0);
    return x;
}

static void host_memory_is_aligned_and_counted(void **state) {
    (void)state;
    struct exec *x = open_cpu();
    void *a = exec_host_alloc(x, 1), *b = exec_host_alloc(x, 100000);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal((uintptr_t)b % 64, 0);
    memset(b, 7, 100000);
    assert_int_equal(exec_host_bytes(x), 100001);
    exec_host_free(x, a);
    exec_host_free(x, NULL);
    assert_int_equal(exec_host_bytes(x), 100000);
    assert_null(exec_host_alloc(x, SIZE_MAX));
    exec_host_free(x, b);
    assert_int_equal(exec_host_bytes(x), 0);
    exec_destroy(x);
}

static void copies_are_done_at_once_on_the_host(void **state) {
    (void)state;
    struct exec *x = open_cpu();
    struct copier *c = NULL;
    struct err e = {0};
    char device[8] = "kept", host[8] = "";
    assert_int_equal(copier_create(&c, x, &e), 0);
    copier_after_compute(c);
    uint64_t first = copier_to_host(c, host, device, sizeof host);
    assert_string_equal(host, "kept");
    assert_true(copier_done(c, first));
    strcpy(host, "new");
    uint64_t second = copier_to_device(c, device, host, sizeof host);
    assert_int_equal(second, first + 1);
    copier_before_compute(c, second);
    assert_int_equal(copier_wait(c, second, &e), 0);
    assert_string_equal(device, "new");
    assert_true(copier_done(c, 0));
    copier_destroy(c);
    copier_destroy(NULL);
    exec_destroy(x);
}

// A queue that records its calls and can be made to fail.
struct copy_queue {
    int n;
};
static struct {
    char log[64];
    int open, refuse;
} fake;

static void say(char what) {
    size_t n = strlen(fake.log);
    assert_true(n + 1 < sizeof fake.log);
    fake.log[n] = what;
    fake.log[n + 1] = 0;
}

static void *fake_alloc(struct exec *x, size_t bytes) {
    (void)x;
    return fake.refuse ? NULL : aligned_alloc(64, bytes);
}

static void fake_free(struct exec *x, void *p) {
    (void)x;
    free(p);
}

static int fake_open(struct copy_queue **out, struct exec *x, struct err *e) {
    (void)x;
    if (fake.refuse)
        return err_set(e, ERR_DEVICE, "no queue");
    *out = calloc(1, sizeof **out);
    fake.open++;
    return 0;
}

static void fake_close(struct copy_queue *q) {
    fake.open--;
    free(q);
}

static void fake_after(struct copy_queue *q) {
    (void)q;
    say('a');
}

static void fake_copy(struct copy_queue *q, void *dst, const void *src, size_t bytes,
                      uint64_t ticket, bool to_host) {
    assert_int_equal(ticket, ++q->n);
    memcpy(dst, src, bytes);
    say(to_host ? 'h' : 'd');
}

static bool fake_done(struct copy_queue *q, uint64_t ticket) {
    (void)q;
    return ticket == 1;
}

static int fake_wait(struct copy_queue *q, uint64_t ticket, struct err *e) {
    (void)q;
    say('w');
    return ticket == 1 ? 0 : err_set(e, ERR_DEVICE, "broken");
}

static void fake_before(struct copy_queue *q, uint64_t ticket) {
    (void)q;
    (void)ticket;
    say('b');
}

static const struct copy_backend fake_backend = {.host_alloc = fake_alloc,
                                                 .host_free = fake_free,
                                                 .open = fake_open,
                                                 .close = fake_close,
                                                 .after_compute = fake_after,
                                                 .copy = fake_copy,
                                                 .done = fake_done,
                                                 .wait = fake_wait,
                                                 .before_compute = fake_before};

static void a_backend_with_a_queue_is_called_in_order(void **state) {
    (void)state;
    struct exec *x = open_cpu();
    struct copier *c = NULL;
    struct err e = {0};
    char a[4] = "abc", b[4] = "";
    x->copies = &fake_backend;
    assert_int_equal(copier_create(&c, x, &e), 0);
    copier_after_compute(c);
    uint64_t one = copier_to_host(c, b, a, sizeof a);
    uint64_t two = copier_to_device(c, a, b, sizeof a);
    assert_true(copier_done(c, one) && !copier_done(c, two));
    assert_int_equal(copier_wait(c, one, &e), 0);
    copier_before_compute(c, two);
    copier_before_compute(c, 0); // nothing to wait for
    assert_int_equal(copier_wait(c, 0, &e), 0);
    assert_int_equal(copier_wait(c, two, &e), ERR_DEVICE);
    assert_string_equal(fake.log, "ahdwbw");
    copier_destroy(c);
    assert_int_equal(fake.open, 0);
    fake.refuse = 1;
    assert_int_equal(copier_create(&c, x, &e), ERR_DEVICE);
    assert_null(c);
    assert_null(exec_host_alloc(x, 10));
    assert_int_equal(exec_host_bytes(x), 0);
    x->copies = NULL;
    exec_destroy(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_memory_is_aligned_and_counted),
        cmocka_unit_test(copies_are_done_at_once_on_the_host),
        cmocka_unit_test(a_backend_with_a_queue_is_called_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
