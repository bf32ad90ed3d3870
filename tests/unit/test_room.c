// SPDX-License-Identifier: Apache-2.0
// Requests that give way to each other for lack of memory, during random joins and cancels: each
// one's tokens and logits are those that it has alone, with drafting and without; and all of it
// happens often enough to mean something.
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/cache/entries.h"
#include "ops/exec.h"
#include "unit/engine_rig.h"
#include "unit/test.h"

static int setup_as(void **state, const char *name, const struct tiny_shape *t) {
    static const int lengths[] = {300, 31, 64, 200, 95, 130, 250, 40, 1, 128};
    static struct engine_rig rig;
    rig = (struct engine_rig){0};
    *state = &rig;
    return rig_open_as(&rig, name, t, lengths, 10, 320);
}

static int setup(void **state) {
    struct tiny_shape t = tiny_shape_default();
    return setup_as(state, "room", &t);
}

static int setup_gemma(void **state) {
    struct tiny_shape t = tiny_shape_form(TINY_FORM_GEMMA4);
    return setup_as(state, "room-gemma", &t);
}

static int setup_oss(void **state) {
    struct tiny_shape t = tiny_shape_form(TINY_FORM_OSS);
    return setup_as(state, "room-oss", &t);
}

static int setup_laguna(void **state) {
    struct tiny_shape t = tiny_shape_form(TINY_FORM_LAGUNA);
    return setup_as(state, "room-laguna", &t);
}

static int teardown(void **state) {
    rig_close(*state);
    return 0;
}

static struct engine *open_small(struct engine_rig *f, int slots, int64_t tokens,
                                 const struct cache_options *cache) {
    struct engine_options o = engine_options_default();
    o.cache = *cache;
    o.slots = slots;
    o.kv_limit = plan_kv(&f->plan, tokens);
    return rig_engine(f, &o);
}

// One round: all requests in a random order and at random moments, a third of them cancelled or
// left alone at some moment.
static void run_round(struct engine_rig *f, struct engine *g, struct rng *r) {
    struct stream *s[RIG_MAX];
    int from = (int)rng_below(r, (uint32_t)f->n);
    for (int k = 0; k < f->n; k++) {
        int i = (from + k) % f->n;
        s[i] = rig_submit(f, g, &f->r[i]);
        if (rng_below(r, 3) == 0)
            rig_tokens(f, s[(from + (int)rng_below(r, (uint32_t)k + 1)) % f->n],
                       (int64_t)rng_below(r, 100));
    }
    for (int k = 0; k < f->n; k++) {
        int i = (from + k) % f->n;
        const int32_t *ids;
        if (rng_below(r, 3) == 0) {
            rig_tokens(f, s[i], (int64_t)rng_below(r, 300));
            stream_cancel(s[i]);
        }
        struct stream_end end = rig_end(f, s[i]);
        int64_t n = stream_tokens(s[i], &ids);
        if (end.reason == END_CALLER)
            assert_memory_equal(ids, f->alone[i].ids, (size_t)n * sizeof *ids);
        else
            rig_same(s[i], &end, &f->alone[i]);
        stream_release(s[i]);
    }
}

// Each amount of memory once, or twice; under a sanitizer one with a cache and one without.
enum { ENGINES = TEST_LONG ? 6 : TEST_BRIEF ? 2 : 3 };

static void remove_folder(const char *folder) {
    char path[512];
    struct dirent *y;
    DIR *d = opendir(folder);
    while (d && (y = readdir(d))) {
        snprintf(path, sizeof path, "%s/%s", folder, y->d_name);
        (void)unlink(path); // not the folders
    }
    if (d)
        closedir(d);
    (void)rmdir(folder);
}

static void parked_is_as_alone(void **state) {
    struct engine_rig *f = *state;
    char folder[64];
    snprintf(folder, sizeof folder, "/tmp/coppice-room-%ld", (long)getpid());
    struct rng r = {11};
    struct engine_stats sum = {0};
    static const int slots[] = {3, 5, 8, 4, 6, 7};
    for (int i = 0; i < ENGINES; i++) {
        // What is dropped may come back from memory, or from a file where that is small.
        // The thread of files has the lowest priority, so that on a busy machine they are waited
        // for.
        bool files = TEST_LONG && i / 2;
        struct cache_options cache = {.ram = i % 2   ? 0
                                             : files ? 1 << 20
                                                     : 4 << 20,
                                      .dir = files ? folder : NULL,
                                      .disk = 64 << 20};
        struct engine *g = open_small(f, slots[i], 640 + 64 * (i % 3), &cache);
        for (int round = 0; round < 2; round++)
            run_round(f, g, &r);
        struct engine_stats y = engine_stats(g);
        assert_int_equal(y.failed, 0);
        assert_int_equal(y.page_bytes_limit, plan_kv(&f->plan, 640 + 64 * (i % 3)));
        assert_true(y.page_bytes_used <= y.page_bytes_limit);
        sum.parkings += y.parkings;
        sum.dropped += y.dropped;
        sum.recomputed += y.recomputed;
        sum.cancelled += y.cancelled;
        sum.cache.loaded += y.cache.loaded;
        engine_destroy(g);
    }
    print_message("parked %lld, without state %lld, tokens run again %lld, cancelled %lld, states "
                  "read from files %lld\n",
                  (long long)sum.parkings, (long long)sum.dropped, (long long)sum.recomputed,
                  (long long)sum.cancelled, (long long)sum.cache.loaded);
    remove_folder(folder);
    assert_true(sum.parkings >= ENGINES * 3 / 2);
    assert_true(sum.dropped >= ENGINES * 5 / 6);
    assert_true(sum.recomputed >= ENGINES * 80);
    assert_true(sum.cancelled >= ENGINES * 5 / 3);
}

// With room in host memory hardly a token is run again: a state comes back as it was, with
// recurrent layers at a multiple of 32 tokens, and a text that is too short for a copy is run. Half
// of the runs have room for one state or two.
static void parked_states_move_to_host_memory(void **state) {
    enum { AMPLE = 64 << 20 };
    struct engine_rig *f = *state;
    struct rng r = {12};
    int64_t moved = 0, dropped = 0, recomputed = 0, crowded = 0;
    for (int i = 0; i < ENGINES; i++) {
        bool ample = i % 2 == 0;
        struct cache_options cache = {.ram = i % 3 ? 0 : 2 << 20,
                                      .host = ample ? AMPLE : plan_kv(&f->plan, 1000)};
        struct engine *g = open_small(f, 3 + i, 640 + 64 * (i % 3), &cache);
        for (int round = 0; round < 2; round++)
            run_round(f, g, &r);
        struct engine_stats y = engine_stats(g);
        assert_int_equal(y.failed, 0);
        assert_int_equal(y.cache.held, 0); // nobody is parked any more
        assert_int_equal(y.cache.held_limit, cache.host);
        assert_true(y.cache.bytes <= y.cache.limit);
        if (!cache.ram)
            assert_int_equal(y.cache.pages, 0);
        moved += y.cache.holds;
        dropped += ample ? y.dropped : 0;
        recomputed += ample ? y.recomputed : 0;
        crowded += ample ? 0 : y.recomputed;
        engine_destroy(g);
    }
    print_message("moved to host memory %lld; with room for all: gave their pages up %lld, tokens "
                  "run again %lld; without %lld\n",
                  (long long)moved, (long long)dropped, (long long)recomputed, (long long)crowded);
    assert_true(moved >= ENGINES && dropped >= ENGINES * 2 / 3);
    assert_true(recomputed <= dropped * (2 * GDN_BLOCK + CACHE_MIN_TOKENS));
}

// Memory in which no page fits any more between those that are there, until all have gone.
static struct {
    struct ops ops;
    const struct ops *own;
    void *page[1024];
    int live, taken, after; // after: that many, for the first time
    bool full, refused, cleared;
    int refusals, bearable; // that many more, and it is cleared all the same; 0: any number
} memory;

static void *take_page(struct exec *x, enum exec_arena arena, size_t bytes) {
    if (arena != ARENA_PAGES)
        return memory.own->alloc(x, bytes);
    memory.full = memory.full || memory.taken >= memory.after;
    if (memory.full && !memory.cleared) {
        memory.refused = true;
        memory.cleared = memory.bearable && ++memory.refusals >= memory.bearable;
        return NULL;
    }
    void *p = memory.own->alloc(x, bytes);
    assert_true(memory.live < 1024);
    memory.page[memory.live++] = p;
    memory.taken++;
    return p;
}

static void give_page(struct exec *x, void *p) {
    for (int i = 0; p && i < memory.live; i++) {
        if (memory.page[i] != p)
            continue;
        memory.page[i] = memory.page[--memory.live];
        memory.cleared = memory.cleared || (memory.full && memory.live == 0);
        break;
    }
    memory.own->free(x, p);
}

static struct exec *open_memory(struct engine_rig *f, int after) {
    struct device_options d = {.name = "cpu", .threads = 2, .cuda_path = CUDA_PATH_AUTO};
    struct runtime_device *cpu = NULL;
    assert_int_equal(runtime_create(&f->runtime, NULL), 0);
    assert_int_equal(runtime_device(f->runtime, &d, &cpu, NULL), 0);
    struct exec *x = runtime_exec(cpu);
    memset(&memory, 0, sizeof memory);
    memory.after = after;
    memory.own = x->ops;
    memory.ops = *x->ops;
    memory.ops.free = give_page;
    x->ops = &memory.ops;
    x->alloc_in = take_page;
    return x;
}

static void close_memory(struct engine_rig *f, struct exec *x) {
    x->ops = memory.own;
    x->alloc_in = NULL;
    runtime_destroy(f->runtime);
    f->runtime = NULL;
}

// Requests of which the oldest finds no page go on with their state made anew, with the cache and
// without: the same tokens and logits.
static void a_fragmented_state_is_recomputed(void **state) {
    struct engine_rig *f = *state;
    int64_t dropped = 0;
    // Runs in which a page was refused to the oldest. In which order requests run depends on the
    // clock; where others are refused one, the oldest may end with what it has.
    int cleared = 0;
    for (int i = 0; i < 12; i++) {
        struct engine_options o = engine_options_default();
        struct stream *s[3];
        struct exec *x = open_memory(f, 3 + 5 * (i / 2));
        o.cache.ram = i % 2 ? 4 << 20 : 0;
        o.slots = 3;
        struct engine *g = rig_engine(f, &o);
        for (int k = 0; k < 3; k++)
            s[k] = rig_submit(f, g, &f->r[k]);
        for (int k = 0; k < 3; k++) {
            struct stream_end end = rig_end(f, s[k]);
            rig_same(s[k], &end, &f->alone[k]);
            stream_release(s[k]);
        }
        cleared += memory.cleared;
        dropped += engine_stats(g).dropped;
        engine_destroy(g);
        close_memory(f, x);
    }
    assert_true(cleared >= 4);
    assert_true(dropped >= 4);
}

// Time stands still in a thread where it is set: prompts come in the order of what is left of them.
static _Thread_local bool still;
int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t) {
    if (id != CLOCK_MONOTONIC || !still)
        return __real_clock_gettime(id, t);
    *t = (struct timespec){.tv_sec = 1};
    return 0;
}

// In the first pass: no further page is to be had, and nothing goes on before the gate is open.
static struct engine_rig *held;
static void hold_first(struct exec *x, const struct weight *w, const int32_t *ids, int64_t n,
                       float *out) {
    if (!still) {
        still = true;
        pthread_mutex_lock(&held->lock);
        memory.full = true;
        pthread_mutex_unlock(&held->lock);
        rig_notice(held);
        pthread_mutex_lock(&held->gate);
        pthread_mutex_unlock(&held->gate);
    }
    memory.own->gather_rows(x, w, ids, n, out);
}

static bool memory_is_full(struct engine_rig *f) {
    pthread_mutex_lock(&f->lock);
    bool full = memory.full;
    pthread_mutex_unlock(&f->lock);
    return full;
}

// A short prompt that finds no page fills each pass, so that the long one of the oldest has no
// turn. It has the next one, for which the other is preempted.
static void the_oldest_is_served_first_when_no_page_is_free(void **state) {
    enum { LONG = 0, SHORT = 2, PIECE = 64, MANY = 100 };
    struct engine_rig *f = held = *state;
    struct engine_options o = engine_options_default();
    struct exec *x = open_memory(f, 1024);
    struct stream *first, *other;
    memory.ops.gather_rows = hold_first;
    memory.bearable = MANY;
    f->chunk = PIECE;
    o.slots = 2;
    struct engine *g = rig_engine(f, &o);
    still = true;
    pthread_mutex_lock(&f->gate);
    first = rig_submit(f, g, &f->r[LONG]);
    RIG_UNTIL(f, memory_is_full(f));
    other = rig_submit(f, g, &f->r[SHORT]);
    pthread_mutex_unlock(&f->gate);
    struct stream_end end = rig_end(f, other);
    rig_same(other, &end, &f->alone[SHORT]);
    end = rig_end(f, first);
    rig_same(first, &end, &f->alone[LONG]);
    still = false;
    assert_true(memory.refused && memory.cleared);
    assert_true(memory.refusals < MANY);
    stream_release(first);
    stream_release(other);
    engine_destroy(g);
    f->chunk = 0;
    close_memory(f, x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_oldest_is_served_first_when_no_page_is_free, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_fragmented_state_is_recomputed, setup, teardown),
        cmocka_unit_test_setup_teardown(parked_is_as_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(parked_is_as_alone, setup_gemma, teardown),
        cmocka_unit_test_setup_teardown(parked_is_as_alone, setup_oss, teardown),
        cmocka_unit_test_setup_teardown(parked_is_as_alone, setup_laguna, teardown),
        cmocka_unit_test_setup_teardown(parked_states_move_to_host_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(parked_states_move_to_host_memory, setup_gemma, teardown),
        cmocka_unit_test_setup_teardown(parked_states_move_to_host_memory, setup_oss, teardown),
        cmocka_unit_test_setup_teardown(parked_states_move_to_host_memory, setup_laguna, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
