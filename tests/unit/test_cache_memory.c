// SPDX-License-Identifier: Apache-2.0
// The prefix cache where host memory is pinned, that is slow to come by: a checkpoint waits until a
// thread has made its memory and nothing else does, it is found all the same by the text that goes
// on from it, and what the system refuses is refused. And where copies come late: what is dropped
// while they are under way does not come to another. Pinned memory is a fake: plain memory that
// other threads than the test's get only while a gate is open.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/batch/batch.h"
#include "engine/cache/entries.h"
#include "models/checkpoint.h"
#include "ops/exec.h"
#include "support/copies.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"
#include "unit/test.h"

enum { PROMPT = 200, POINT = 96, RAM = 1 << 24 };

static struct {
    pthread_t test;
    pthread_mutex_t gate;
    bool refuse;        // other threads
    int made_by_thread; // by other threads, under the gate
    int made_by_itself; // by the test's
} memory = {.gate = PTHREAD_MUTEX_INITIALIZER};

static void *slow_alloc(struct exec *x, size_t bytes) {
    (void)x;
    if (pthread_equal(pthread_self(), memory.test)) {
        memory.made_by_itself++;
        return aligned_alloc(64, bytes);
    }
    pthread_mutex_lock(&memory.gate);
    void *p = memory.refuse ? NULL : aligned_alloc(64, bytes);
    memory.made_by_thread++;
    pthread_mutex_unlock(&memory.gate);
    return p;
}

static struct copy_backend slow;
static const struct late_copies *late; // copies are, not memory; NULL: memory is

struct scene {
    struct tiny_pair files;
    struct session *session;
    struct cache *cache;
    int32_t prompt[PROMPT];
    int64_t point;           // tokens of it that are kept
    struct cache_hold *hold; // NULL, or what they are held by
    bool held;
};

static void keep(void *arg, struct checkpoint *c, const struct err *e) {
    struct scene *s = arg;
    (void)e;
    assert_non_null(c);
    if (s->hold)
        s->held = cache_put_held(s->cache, c, s->hold);
    else
        cache_put(s->cache, c);
}

// Reads the prompt and leaves a checkpoint in the cache.
static void read_prompt(struct scene *s) {
    struct request r;
    struct reply reply = {0};
    struct err e = {0};
    request_init(&r);
    r.prompt = s->prompt;
    r.n_prompt = PROMPT;
    r.max_tokens = 2;
    r.ignore_eos = true;
    r.how = SPECULATE_OFF;
    r.checkpoint_at = &s->point;
    r.n_checkpoints = 1;
    r.checkpoint = keep;
    r.checkpoint_arg = s;
    assert_int_equal(session_generate(s->session, &r, &reply, &e), 0);
    reply_fini(&reply);
}

static void open_scene_with(struct scene *s, const char *name, const struct cache_options *c) {
    struct session_options o = session_options_default();
    struct err e = {0};
    memset(s, 0, sizeof *s);
    s->point = POINT;
    memory.test = pthread_self();
    memory.refuse = false;
    memory.made_by_thread = memory.made_by_itself = 0;
    assert_int_equal(tiny_pair_write(&s->files, name), 0);
    o.model = s->files.target;
    o.threads = 1;
    o.target.max_ctx = 512;
    o.make_plan = true;
    assert_int_equal(session_open(&s->session, &o, &e), 0);
    slow = late ? copies_late(late) : copies_at_once();
    slow.host_alloc = late ? slow.host_alloc : slow_alloc;
    model_exec(session_model(s->session))->copies = &slow;
    assert_int_equal(cache_create(&s->cache, s->session, c, &e), 0);
    for (int i = 0; i < PROMPT; i++)
        s->prompt[i] = (i * 37 + i / 9) % 250;
}

static void open_scene(struct scene *s, const char *name) {
    open_scene_with(s, name, &(struct cache_options){.ram = RAM});
}

static void close_scene(struct scene *s) {
    struct exec *x = model_exec(session_model(s->session));
    cache_destroy(s->cache);
    assert_int_equal(exec_host_bytes(x), 0); // all of it was given back
    x->copies = NULL;
    session_close(s->session);
    tiny_pair_remove(&s->files);
}

// Tokens of the prompt that come back, with the state that they have without a cache.
static int64_t cached(struct scene *s) {
    struct sequence *seq = NULL;
    struct request r;
    struct reply got = {0}, want = {0};
    struct err e = {0};
    assert_int_equal(model_sequence(session_model(s->session), &seq, &e), 0);
    struct cache_report report = cache_restore(s->cache, s->prompt, PROMPT, PROMPT, seq);
    assert_int_equal(sequence_len(seq), report.cached);
    assert_memory_equal(sequence_tokens(seq), s->prompt,
                        (size_t)report.cached * sizeof s->prompt[0]);
    request_init(&r);
    r.prompt = s->prompt;
    r.n_prompt = PROMPT;
    r.max_tokens = 4;
    r.ignore_eos = r.logit_hash = true;
    r.how = SPECULATE_OFF;
    assert_int_equal(session_generate(s->session, &r, &want, &e), 0);
    r.prefix = report.cached ? seq : NULL;
    assert_int_equal(session_generate(s->session, &r, &got, &e), 0);
    assert_int_equal(got.hash, want.hash);
    reply_fini(&got);
    reply_fini(&want);
    sequence_destroy(seq);
    return report.cached;
}

// Polls the cache of a scene until the condition holds.
#define POLL_UNTIL(s, condition) WAIT_UNTIL((cache_poll((s)->cache), condition))

static bool hold_prompt(struct scene *s, struct cache_hold *h) {
    s->hold = h;
    read_prompt(s);
    s->hold = NULL;
    return s->held;
}

// With a cache and without, two that hold one state: it stays until both have released it, whatever
// needs its memory; a cache keeps it then.
static void states_are_held_until_they_are_released(void **state) {
    (void)state;
    for (int keeps = 0; keeps < 2; keeps++) {
        struct scene s;
        struct cache_hold a = {0}, b = {0};
        open_scene_with(&s, "held", &(struct cache_options){.ram = keeps * RAM, .host = RAM});
        assert_int_equal(cache_keeps(s.cache), keeps);
        assert_true(hold_prompt(&s, &a));
        int64_t held = cache_stats(s.cache).held, pages = cache_stats(s.cache).pages;
        assert_true(held > 0 && pages > 0);
        assert_true(hold_prompt(&s, &b));
        assert_int_equal(cache_stats(s.cache).held, held); // once
        assert_false(cache_evict_for(s.cache, s.cache->o.ram, NULL));
        assert_int_equal(cached(&s), POINT);
        cache_release(s.cache, &a);
        assert_null(a.entry);
        assert_int_equal(cache_stats(s.cache).held, held);
        assert_false(cache_evict_for(s.cache, s.cache->o.ram, NULL));
        assert_int_equal(cached(&s), POINT);
        cache_release(s.cache, &b);
        cache_release(s.cache, &b); // nothing
        assert_int_equal(cache_stats(s.cache).held, 0);
        assert_int_equal(cache_stats(s.cache).pages, keeps * pages);
        assert_int_equal(cached(&s), keeps * POINT);
        close_scene(&s);
    }
}

// Entries of the cache take nothing of --kv-host, and none goes for what cannot fit beside what is
// held.
static void others_take_no_room_of_what_is_held(void **state) {
    (void)state;
    struct scene s;
    struct cache_hold h = {0};
    open_scene_with(&s, "held", &(struct cache_options){.ram = RAM, .host = RAM});
    for (; s.prompt[0] < 2; s.prompt[0]++) { // they share nothing
        read_prompt(&s);
        cache_flush(s.cache);
    }
    const int64_t room = cache_stats(s.cache).bytes * 5 / 4;
    s.cache->o.ram = s.cache->o.host + room;
    read_prompt(&s);
    cache_flush(s.cache);
    struct cache_stats y = cache_stats(s.cache);
    assert_int_equal(y.evicted, 1);
    assert_int_equal(y.entries, 2);
    assert_true(y.bytes <= room);
    s.prompt[0]++;
    assert_true(hold_prompt(&s, &h)); // is besides
    y = cache_stats(s.cache);
    assert_int_equal(y.evicted, 1);
    assert_true(y.bytes > room);
    assert_false(cache_evict_for(s.cache, room + 1, NULL));
    assert_int_equal(cache_stats(s.cache).evicted, 1);
    assert_true(cache_evict_for(s.cache, room / 2, NULL)); // in place of another
    assert_int_equal(cache_stats(s.cache).evicted, 2);
    cache_release(s.cache, &h);
    close_scene(&s);
}

// What does not fit --kv-host is not held, and less than any state takes is refused at the start.
static void no_more_is_held_than_may_be(void **state) {
    (void)state;
    struct scene s;
    struct cache *none = NULL;
    struct cache_hold h = {0};
    struct err e = {0};
    open_scene_with(&s, "held", &(struct cache_options){.ram = RAM, .host = RAM});
    assert_true(hold_prompt(&s, &h));
    int64_t enough = cache_stats(s.cache).held;
    cache_release(s.cache, &h);
    cache_destroy(s.cache);
    for (int more = 0; more < 2; more++) {
        struct cache_options o = {.ram = RAM, .host = enough - 1 + more};
        assert_int_equal(cache_create(&s.cache, s.session, &o, &e), 0);
        assert_int_equal(hold_prompt(&s, &h), more);
        assert_int_equal(cache_stats(s.cache).held, more * enough);
        assert_int_equal(cached(&s), POINT); // the cache has it
        cache_release(s.cache, &h);
        cache_destroy(s.cache);
    }
    int rc = cache_create(&none, s.session, &(struct cache_options){.ram = RAM, .host = 1}, &e);
    assert_int_equal(rc, ERR_LIMIT);
    assert_non_null(strstr(e.text, "1 bytes of host memory for states (--kv-host)"));
    assert_int_equal(cache_create(&s.cache, s.session, &(struct cache_options){.ram = RAM}, &e), 0);
    assert_false(hold_prompt(&s, &h));
    assert_int_equal(cached(&s), POINT);
    close_scene(&s);
}

static void a_checkpoint_waits_for_its_own_memory_only(void **state) {
    (void)state;
    struct scene s;
    open_scene(&s, "cache_waits");
    pthread_mutex_lock(&memory.gate);
    read_prompt(&s); // ends although there is no memory
    cache_poll(s.cache);
    assert_int_equal(cache_stats(s.cache).put, 0);
    pthread_mutex_unlock(&memory.gate);
    POLL_UNTIL(&s, cache_stats(s.cache).put == 1);
    assert_true(memory.made_by_thread > 0);
    assert_int_equal(memory.made_by_itself, 0);
    assert_int_equal(cached(&s), POINT);
    close_scene(&s);
}

static void prepared_memory_is_there_at_the_first_checkpoint(void **state) {
    (void)state;
    struct scene s;
    open_scene(&s, "cache_prepared");
    struct exec *x = model_exec(session_model(s.session));
    cache_prepare(s.cache);
    int64_t wanted = s.cache->blocks.held;
    assert_true(wanted > 0 && wanted <= RAM);
    WAIT_UNTIL(exec_host_bytes(x) == wanted);
    pthread_mutex_lock(&memory.gate);
    int made = memory.made_by_thread;
    read_prompt(&s);
    assert_int_equal(cache_stats(s.cache).put, 1);
    assert_int_equal(memory.made_by_thread, made);
    assert_int_equal(memory.made_by_itself, 0);
    pthread_mutex_unlock(&memory.gate);
    assert_int_equal(cached(&s), POINT);
    assert_true(cache_stats(s.cache).bytes <= RAM);
    close_scene(&s);
}

static void continuing_from_an_entry_does_not_wait(void **state) {
    (void)state;
    struct scene s;
    open_scene(&s, "cache_goes_on");
    pthread_mutex_lock(&memory.gate);
    read_prompt(&s);
    s.prompt[POINT - 1] ^= 1; // another text
    assert_int_equal(cached(&s), 0);
    assert_int_equal(cache_stats(s.cache).put, 0);
    assert_int_equal(memory.made_by_itself, 0);
    s.prompt[POINT - 1] ^= 1;
    assert_int_equal(cached(&s), POINT);
    assert_true(memory.made_by_itself > 0);
    pthread_mutex_unlock(&memory.gate);
    close_scene(&s);
}

static void memory_without_a_thread_is_allocated_at_once(void **state) {
    (void)state;
    struct scene s;
    open_scene(&s, "cache_refused");
    memory.refuse = true;
    read_prompt(&s);
    POLL_UNTIL(&s, cache_stats(s.cache).put == 1);
    assert_true(memory.made_by_itself > 0);
    assert_int_equal(cached(&s), POINT);
    close_scene(&s);
}

static void more_than_may_wait_is_kept_in_order(void **state) {
    (void)state;
    struct scene s;
    open_scene(&s, "cache_many");
    pthread_mutex_lock(&memory.gate);
    for (int i = 0; i < 12; i++) {
        s.prompt[0] = i;
        read_prompt(&s);
    }
    int64_t put = cache_stats(s.cache).put;
    assert_true(put >= 4 && put < 12); // the first ones had to make room
    pthread_mutex_unlock(&memory.gate);
    POLL_UNTIL(&s, cache_stats(s.cache).put == 12);
    for (int i = 0; i < 12; i++) {
        s.prompt[0] = i;
        assert_int_equal(cached(&s), POINT);
    }
    assert_true(cache_stats(s.cache).bytes <= RAM);
    close_scene(&s);
}

// Reads the prompt until its copies are under way.
static void begin_copies(struct scene *s) {
    int64_t put = cache_stats(s->cache).put;
    read_prompt(s);
    POLL_UNTIL(s, cache_stats(s->cache).put == put + 1);
}

// More texts than there is room for, so that every one that is kept takes the memory of another
// whose copies have not come yet.
static void dropped_entries_wait_for_their_copies(void **state) {
    (void)state;
    struct late_copies how = {.seed = 5};
    struct scene s;
    late = &how;
    open_scene(&s, "cache_room");
    begin_copies(&s);
    int64_t one = cache_stats(s.cache).bytes;
    close_scene(&s);
    open_scene_with(&s, "cache_late", &(struct cache_options){.ram = 2 * one + one / 2});
    for (int i = 0; i < 30; i++) {
        s.prompt[0] = i;
        how.chance = i < 15 ? 0 : 4; // none comes before it must, or some do
        begin_copies(&s);
        if (i % 4 == 3)
            assert_int_equal(cached(&s), POINT);
    }
    assert_true(cache_stats(s.cache).evicted > 20);
    close_scene(&s);
    late = NULL;
}

// Files that have been written or could not be.
static int64_t files_of(const struct scene *s) {
    struct cache_stats y = cache_stats(s->cache);
    return y.written + y.failed;
}

// The same with files, besides which RAM copies go and come back.
static void dropped_entries_with_files_wait_for_their_copies(void **state) {
    (void)state;
    enum { TEXTS = 12 };
    struct late_copies how = {.seed = 5};
    char dir[] = "/tmp/cache_late.XXXXXX", command[64];
    struct scene s;
    late = &how;
    assert_non_null(mkdtemp(dir));
    open_scene(&s, "cache_room");
    begin_copies(&s);
    int64_t one = cache_stats(s.cache).bytes;
    close_scene(&s);
    open_scene_with(
        &s, "cache_late",
        &(struct cache_options){.ram = 2 * one + one / 2, .dir = dir, .disk = 100 * one});
    for (int i = 0; i < TEXTS; i++) {
        s.prompt[0] = i;
        begin_copies(&s);
        cache_flush(s.cache);
        POLL_UNTIL(&s, files_of(&s) > i);
        assert_int_equal(cache_stats(s.cache).written, i + 1);
    }
    int64_t evicted = cache_stats(s.cache).evicted;
    for (int i = 1; i < TEXTS - 1; i++) { // others may still be there
        s.prompt[0] = i;
        begin_copies(&s);
        if (i % 4 == 3)
            assert_int_equal(cached(&s), POINT);
    }
    assert_true(cache_stats(s.cache).evicted - evicted > 5);
    close_scene(&s);
    late = NULL;
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

// The cost of dropping many at once is that of looking at each a few times, not at all for each.
static void dropping_many_looks_at_each_a_few_times(void **state) {
    (void)state;
    enum { MANY = 200 };
    char dir[] = "/tmp/cache_many.XXXXXX", command[64];
    struct late_copies how = {.seed = 7, .chance = 1};
    struct cache_options o = {.ram = INT64_C(1) << 30, .disk = INT64_C(1) << 30};
    struct scene s;
    late = &how;
    assert_non_null(mkdtemp(dir));
    o.dir = dir;
    open_scene_with(&s, "cache_much", &o);
    for (int i = 0; i < MANY; i++) {
        s.prompt[0] = i;
        begin_copies(&s);
        cache_flush(s.cache);
        POLL_UNTIL(&s, files_of(&s) + 20 >= i); // so that all are taken
    }
    POLL_UNTIL(&s, files_of(&s) >= MANY);
    struct cache_stats full = cache_stats(s.cache);
    assert_int_equal(full.written, MANY);
    assert_int_equal(full.weighed, 0);
    s.cache->o.ram = full.bytes / 10;
    cache_poll(s.cache);
    struct cache_stats less = cache_stats(s.cache);
    assert_true(less.evicted > MANY / 2 && less.weighed < 4 * MANY);
    close_scene(&s);
    o.disk = full.disk_bytes / 10; // another life, with less room
    open_scene_with(&s, "cache_much", &o);
    POLL_UNTIL(&s, cache_stats(s.cache).removed > 0);
    less = cache_stats(s.cache);
    assert_true(less.removed > MANY / 2 && less.weighed < 4 * MANY);
    assert_true(less.disk_bytes <= o.disk);
    close_scene(&s);
    late = NULL;
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void entries_with_pages_that_failed_to_load_are_dropped(void **state) {
    (void)state;
    struct late_copies how = {.seed = 6};
    struct scene s;
    late = &how;
    open_scene(&s, "cache_failed");
    how.fail = true;
    begin_copies(&s);
    how.fail = false;
    s.prompt[POINT - 1] ^= 1; // shares the pages before it
    begin_copies(&s);
    assert_int_equal(cached(&s), 0);
    s.prompt[POINT - 1] ^= 1;
    assert_int_equal(cached(&s), 0);
    assert_int_equal(cache_stats(s.cache).entries, 0);
    read_prompt(&s);
    assert_int_equal(cached(&s), POINT);
    close_scene(&s);
    late = NULL;
}

static pthread_mutex_t disk_gate = PTHREAD_MUTEX_INITIALIZER;

// The disk's thread begins no other job while the test holds the gate.
static void pass_gate(void *arg) {
    (void)arg;
    pthread_mutex_lock(&disk_gate);
    pthread_mutex_unlock(&disk_gate);
}

// Reads the prompt with another token at `at`, and waits for the file of its first `point` tokens.
static void keep_file(struct scene *s, int at, int64_t point) {
    int64_t written = cache_stats(s->cache).written;
    s->prompt[at] ^= 1;
    s->point = point;
    read_prompt(s);
    cache_flush(s->cache);
    POLL_UNTIL(s, s->cache->stats.written == written + 1);
}

// The path of the file with that many tokens, of which there is one.
static const struct record *find_file(const struct cache *c, int64_t len, char *path) {
    const struct cache_entry *y = c->all;
    while (y && (y->len != len || !y->file))
        y = y->next;
    assert_non_null(y);
    cache_disk_path(c->disk, c->kind, y->file->key, path);
    return y->file;
}

static void damage_first_page(struct cache *c, int64_t len) {
    char path[CACHE_PATH];
    uint64_t sum;
    const struct record *y = find_file(c, len, path);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)record_page(y, 0, 0, &sum), SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(byte ^ 1, f), byte ^ 1);
    assert_int_equal(fclose(f), 0);
}

// A file of the cache that goes on from no other is a saved text, and the other way round.
static void a_file_is_a_saved_text(struct scene *s, int64_t len) {
    struct model *m = session_model(s->session);
    struct checkpoint *c = NULL;
    struct token_tail tail;
    struct record head;
    char path[CACHE_PATH], saved[CACHE_PATH + 8];
    struct err e = {0};
    const struct record *f = find_file(s->cache, len, path);
    assert_int_equal(f->base, 0);
    assert_int_equal(model_checkpoint_load(m, path, &c, &tail, &e), 0);
    assert_int_equal(checkpoint_len(c), len);
    assert_int_equal(tail.n, 0);
    assert_memory_equal(checkpoint_tokens(c), s->prompt, (size_t)len * sizeof *s->prompt);
    snprintf(saved, sizeof saved, "%s.saved", path);
    assert_int_equal(model_checkpoint_save(m, c, NULL, saved, &e), 0);
    assert_int_equal(cache_file_head(&head, saved, &e), 0);
    assert_int_equal(head.kind, f->kind);
    assert_int_equal(head.key, f->key);
    assert_int_equal(head.bytes, f->bytes);
    record_fini(&head);
    unlink(saved);
    free(tail.ids);
    checkpoint_destroy(c);
}

static void drop_images(struct cache *c) {
    for (struct cache_entry *y = c->all, *next; y; y = next) {
        next = y->next;
        cache_evict(c, y);
    }
}

// Two texts that go on from a third are being read when the file of that turns out to be damaged.
// The first to fail takes the files of all away; before the second fails, the third has been run
// and has a new one of the same name.
static void an_entry_whose_file_is_removed_while_read_is_dropped(void **state) {
    (void)state;
    enum { LONGER = 160, AFTER = 100 };
    struct late_copies how = {.seed = 8, .chance = 1};
    char dir[] = "/tmp/cache_lost.XXXXXX", command[64];
    struct scene s;
    late = &how;
    assert_non_null(mkdtemp(dir));
    open_scene_with(
        &s, "cache_lost",
        &(struct cache_options){.ram = RAM, .dir = dir, .disk = RAM, .wake = pass_gate});
    POLL_UNTIL(&s, s.cache->scanned);
    keep_file(&s, AFTER, POINT);
    keep_file(&s, AFTER, LONGER);
    keep_file(&s, AFTER + 1, LONGER);
    drop_images(s.cache);
    damage_first_page(s.cache, POINT);
    pthread_mutex_lock(&disk_gate);
    assert_false(cache_ready(s.cache, s.prompt, PROMPT, PROMPT));
    s.prompt[AFTER + 1] ^= 1;
    assert_false(cache_ready(s.cache, s.prompt, PROMPT, PROMPT));
    POLL_UNTIL(&s, s.cache->stats.failed == 1);
    s.point = POINT;
    read_prompt(&s);
    cache_flush(s.cache);
    pthread_mutex_unlock(&disk_gate);
    POLL_UNTIL(&s, s.cache->stats.failed == 2);
    for (const struct cache_entry *y = s.cache->all; y; y = y->next)
        assert_true(y->ram_copy || y->file);
    assert_true(cache_ready(s.cache, s.prompt, PROMPT, PROMPT));
    assert_int_equal(cached(&s), POINT);
    close_scene(&s);
    late = NULL;
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

// A file whose base is gone is of no use and counted among others, until its text has been run
// again and has a file of the same name: that one is not another's to be removed.
static void rewritten_files_are_used(void **state) {
    (void)state;
    enum { LONGER = 160, AFTER = 100 };
    struct late_copies how = {.seed = 9, .chance = 1};
    char dir[] = "/tmp/cache_anew.XXXXXX", command[64], path[CACHE_PATH];
    struct cache_options o = {.ram = RAM, .dir = dir, .disk = RAM};
    struct scene s;
    late = &how;
    assert_non_null(mkdtemp(dir));
    open_scene_with(&s, "cache_anew", &o);
    POLL_UNTIL(&s, s.cache->scanned);
    keep_file(&s, AFTER, POINT);
    keep_file(&s, AFTER, LONGER);
    (void)find_file(s.cache, POINT, path);
    cache_destroy(s.cache);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(cache_create(&s.cache, s.session, &o, NULL), 0);
    POLL_UNTIL(&s, s.cache->scanned);
    assert_int_equal(s.cache->n_other, 1);
    read_prompt(&s);
    cache_flush(s.cache);
    POLL_UNTIL(&s, s.cache->stats.written == 1);
    assert_int_equal(s.cache->n_other, 0);
    assert_int_equal(cache_stats(s.cache).disk_bytes, find_file(s.cache, LONGER, path)->bytes);
    close_scene(&s);
    late = NULL;
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static int notes;

static void count_note(void *arg, const char *sentence) {
    (void)arg;
    notes += strstr(sentence, "has changed since it was loaded") != NULL;
}

// Sets a file's times, and returns whether that has changed the time of changes.
static bool touch(FILE *f, const struct timespec times[2], const struct timespec *before) {
    struct stat st;
    assert_int_equal(futimens(fileno(f), times), 0);
    assert_int_equal(fstat(fileno(f), &st), 0);
    return st.st_ctim.tv_sec != before->tv_sec || st.st_ctim.tv_nsec != before->tv_nsec;
}

// Turns a bit of the model's last tensor round; keep_time: the file is as old as before.
static void change_model(const struct scene *s, bool keep_time) {
    struct stat st;
    FILE *f = fopen(s->files.target, "r+b");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    assert_int_equal(fseek(f, -33, SEEK_END), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, -33, SEEK_END), 0);
    assert_int_equal(fputc(byte ^ 1, f), byte ^ 1);
    assert_int_equal(fflush(f), 0);
    st.st_mtim.tv_nsec ^= keep_time ? 0 : 1; // clocks may be coarse
    const struct timespec times[] = {st.st_atim, st.st_mtim};
    WAIT_UNTIL(touch(f, times, &st.st_ctim));
    assert_int_equal(fclose(f), 0);
}

static void read_another(struct scene *s, int at) {
    s->prompt[at] ^= 1;
    read_prompt(s);
    cache_flush(s->cache);
    cache_disk_wait(s->cache->disk);
    cache_poll(s->cache);
    cache_disk_wait(s->cache->disk);
    cache_poll(s->cache);
}

// Weights that are mapped change with their file: what they give from then on is not kept under the
// name of what the file was, nor is what was kept read, whatever the file's time says.
static void a_model_that_changes_in_place_ends_the_files(void **state) {
    (void)state;
    for (int keep_time = 0; keep_time < 2; keep_time++) {
        struct late_copies how = {.seed = 11, .chance = 1};
        char dir[] = "/tmp/cache_turn.XXXXXX", command[64], moved[300];
        struct cache_options o = {.ram = RAM, .dir = dir, .disk = RAM, .note = count_note};
        struct scene s;
        late = &how;
        notes = 0;
        assert_non_null(mkdtemp(dir));
        open_scene_with(&s, "cache_turn", &o);
        POLL_UNTIL(&s, s.cache->scanned);
        keep_file(&s, 0, POINT);
        // Another name and the old one again: it is still the same file.
        snprintf(moved, sizeof moved, "%s.moved", s.files.target);
        assert_int_equal(rename(s.files.target, moved), 0);
        assert_int_equal(rename(moved, s.files.target), 0);
        keep_file(&s, 1, POINT);
        assert_int_equal(notes, 0);
        drop_images(s.cache);
        change_model(&s, keep_time);
        assert_true(cache_ready(s.cache, s.prompt, PROMPT, PROMPT)); // nothing is waited for
        for (int at = 2; at < 5; at++)
            read_another(&s, at);
        assert_int_equal(notes, 1);
        assert_int_equal(cache_stats(s.cache).written, 2);
        assert_int_equal(cache_stats(s.cache).loaded, 0);
        close_scene(&s);
        late = NULL;
        snprintf(command, sizeof command, "rm -r %s", dir);
        assert_int_equal(system(command), 0);
    }
}

// A file that a newer version has written stays as it is, also where its text is run again.
static void files_of_newer_versions_stay(void **state) {
    (void)state;
    enum { AT = 8, NEWER = 9 }; // the form's version
    struct late_copies how = {.seed = 10, .chance = 1};
    char dir[] = "/tmp/cache_new.XXXXXX", command[64], path[CACHE_PATH];
    struct cache_options o = {.ram = RAM, .dir = dir, .disk = RAM};
    struct scene s;
    late = &how;
    assert_non_null(mkdtemp(dir));
    open_scene_with(&s, "cache_new", &o);
    POLL_UNTIL(&s, s.cache->scanned);
    keep_file(&s, 0, POINT);
    a_file_is_a_saved_text(&s, POINT);
    (void)find_file(s.cache, POINT, path);
    cache_destroy(s.cache);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, AT, SEEK_SET), 0);
    assert_int_equal(fputc(NEWER, f), NEWER);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(cache_create(&s.cache, s.session, &o, NULL), 0);
    POLL_UNTIL(&s, s.cache->scanned);
    read_prompt(&s);
    cache_flush(s.cache);
    cache_disk_wait(s.cache->disk);
    cache_poll(s.cache);
    assert_int_equal(cache_stats(s.cache).written, 0);
    f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, AT, SEEK_SET), 0);
    assert_int_equal(fgetc(f), NEWER);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(cached(&s), POINT);
    close_scene(&s);
    late = NULL;
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

// Milliseconds that the clock of the test's thread is ahead.
static _Thread_local int64_t ahead;
int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t) {
    int rc = __real_clock_gettime(id, t);
    t->tv_sec += ahead / 1000;
    return rc;
}

// A reader of a folder looks whether there is something new if the last look is a second ago. Who
// has waited for a look that took longer goes on then, without another one.
static void a_long_look_is_waited_for_once(void **state) {
    (void)state;
    enum { LONG = 5000 };
    struct late_copies how = {.seed = 11, .chance = 1};
    char dir[] = "/tmp/cache_look.XXXXXX", command[64];
    struct cache_options o = {.ram = RAM, .dir = dir, .disk = RAM};
    struct cache *writer;
    struct scene s;
    late = &how;
    assert_non_null(mkdtemp(dir));
    open_scene_with(&s, "cache_look", &o);
    writer = s.cache;
    POLL_UNTIL(&s, s.cache->scanned);
    assert_int_equal(cache_create(&s.cache, s.session, &o, NULL), 0);
    POLL_UNTIL(&s, s.cache->scanned);
    assert_false(cache_disk_writes(s.cache->disk));
    ahead += LONG;
    assert_false(cache_ready(s.cache, s.prompt, PROMPT, PROMPT)); // now it looks
    ahead += LONG;
    cache_disk_wait(s.cache->disk);
    cache_poll(s.cache);
    assert_true(cache_ready(s.cache, s.prompt, PROMPT, PROMPT));
    ahead += LONG;
    assert_false(cache_ready(s.cache, s.prompt, PROMPT, PROMPT)); // and again for another one
    cache_disk_wait(s.cache->disk);
    ahead = 0;
    cache_destroy(writer);
    close_scene(&s);
    late = NULL;
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

// A restore waits for copies, which become files then, and those are kept account of.
static void a_restore_keeps_to_the_budget(void **state) {
    (void)state;
    struct late_copies how = {.seed = 12}; // none comes before it must
    char dir[] = "/tmp/cache_budget.XXXXXX", command[64];
    struct scene s;
    late = &how;
    assert_non_null(mkdtemp(dir));
    open_scene_with(&s, "cache_budget",
                    &(struct cache_options){.ram = RAM, .dir = dir, .disk = RAM});
    POLL_UNTIL(&s, s.cache->scanned);
    for (int i = 0; i < 3; i++) {
        s.prompt[0] = i;
        begin_copies(&s);
    }
    s.cache->o.ram = cache_stats(s.cache).bytes;
    (void)cached(&s);
    struct cache_stats y = cache_stats(s.cache);
    assert_int_equal(y.evicted, 1); // there were files to be kept account of
    assert_true(y.bytes <= y.limit);
    close_scene(&s);
    late = NULL;
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void the_usual_limit_follows_model_and_machine(void **state) {
    const int64_t mib = 1 << 20, gib = 1 << 30, none = 0;
    (void)state;
    assert_int_equal(cache_usual_ram(100 * mib, 64 * gib), 400 * mib);
    assert_int_equal(cache_usual_ram(10 * mib, 64 * gib), 256 * mib);
    assert_int_equal(cache_usual_ram(16 * gib, 256 * gib), 8 * gib);
    assert_int_equal(cache_usual_ram(16 * gib, 32 * gib), 2 * gib);    // an eighth of what is left
    assert_int_equal(cache_usual_ram(31 * gib, 32 * gib), 512 * mib);  // and of an eighth at least
    assert_int_equal(cache_usual_ram(200 * gib, 32 * gib), 512 * mib); // on a GPU
    assert_int_equal(cache_usual_ram(10 * mib, gib), 1014 * mib / 8);
    assert_int_equal(cache_usual_ram(INT64_MAX, none), 8 * gib);
    assert_int_equal(cache_usual_ram(1, none), 256 * mib);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_usual_limit_follows_model_and_machine),
        cmocka_unit_test(states_are_held_until_they_are_released),
        cmocka_unit_test(no_more_is_held_than_may_be),
        cmocka_unit_test(others_take_no_room_of_what_is_held),
        cmocka_unit_test(a_checkpoint_waits_for_its_own_memory_only),
        cmocka_unit_test(prepared_memory_is_there_at_the_first_checkpoint),
        cmocka_unit_test(continuing_from_an_entry_does_not_wait),
        cmocka_unit_test(memory_without_a_thread_is_allocated_at_once),
        cmocka_unit_test(more_than_may_wait_is_kept_in_order),
        cmocka_unit_test(dropped_entries_wait_for_their_copies),
        cmocka_unit_test(dropped_entries_with_files_wait_for_their_copies),
        cmocka_unit_test(dropping_many_looks_at_each_a_few_times),
        cmocka_unit_test(entries_with_pages_that_failed_to_load_are_dropped),
        cmocka_unit_test(an_entry_whose_file_is_removed_while_read_is_dropped),
        cmocka_unit_test(rewritten_files_are_used),
        cmocka_unit_test(files_of_newer_versions_stay),
        cmocka_unit_test(a_model_that_changes_in_place_ends_the_files),
        cmocka_unit_test(a_restore_keeps_to_the_budget),
        cmocka_unit_test(a_long_look_is_waited_for_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
