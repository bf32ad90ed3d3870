// SPDX-License-Identifier: Apache-2.0
// Streams without an engine: a thread that publishes tokens concurrently with one that reads them
// sees each token once and in order, is notified of everything and never twice without news; slow
// readers of trees lose the oldest; a reader that releases is not called any more.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/loop/stream_impl.h"
#include "support/wait.h"
#include "unit/test.h"

enum { TOKENS = 20000 };

struct reader {
    atomic_int notices;
    struct stream *s;
};

static void notice(void *arg) {
    struct reader *r = arg;
    r->notices++;
}

static struct stream *new_stream(struct queue *q, struct reader *r, bool trees) {
    static const int32_t prompt[] = {1, 2, 3};
    struct stream_options o = {.notify = r ? notice : NULL, .notify_arg = r, .trees = trees};
    struct stream *s;
    request_init(&o.r);
    o.r.prompt = prompt;
    o.r.n_prompt = 3;
    assert_int_equal(stream_create(&s, &o, q, NULL), 0);
    s->reply.ids = calloc(TOKENS, sizeof *s->reply.ids);
    s->reply.accepted = calloc(TOKENS, sizeof *s->reply.accepted);
    return s;
}

// The engine's side: one to three tokens at a time.
static void *publish_all(void *arg) {
    struct reader *r = arg;
    struct reply *y = &r->s->reply;
    while (y->n < TOKENS) {
        int64_t before = y->n, count = 1 + y->n % 3;
        for (int i = 0; i < count && y->n < TOKENS; i++, y->n++)
            y->ids[y->n] = (int32_t)(y->n * 31);
        y->accepted[y->steps++] = (int32_t)(y->n - before);
        stream_publish(r->s, STREAM_DECODING);
    }
    stream_finish(r->s, END_LENGTH, NULL);
    stream_drop(r->s);
    return NULL;
}

static void every_token_once(void **state) {
    (void)state;
    struct reader r = {0};
    struct queue *q;
    struct stream_end end;
    pthread_t engine;
    int64_t seen = 0, wakes = 0;
    assert_int_equal(queue_create(&q, 4, NULL), 0);
    r.s = new_stream(q, &r, false);
    assert_int_equal(stream_progress(r.s).phase, STREAM_QUEUED);
    assert_false(stream_ended(r.s, &end));
    assert_int_equal(pthread_create(&engine, NULL, publish_all, &r), 0);
    for (bool ended = false; !ended; wakes++) {
        const int32_t *ids;
        WAIT_UNTIL(atomic_exchange(&r.notices, 0) > 0);
        ended = stream_ended(r.s, &end);
        for (int64_t n = stream_tokens(r.s, &ids); seen < n; seen++)
            assert_int_equal(ids[seen], (int32_t)(seen * 31));
    }
    WAIT_JOIN(engine, NULL);
    assert_int_equal(seen, TOKENS);
    assert_int_equal(end.tokens, TOKENS);
    assert_int_equal(end.reason, END_LENGTH);
    assert_int_equal(end.accepted + end.steps, TOKENS);
    assert_true(wakes <= end.steps + 1);
    stream_release(r.s);
    queue_drop(q);
}

// A reader that does not read is notified once only.
static void notices_are_coalesced(void **state) {
    (void)state;
    struct reader r = {0};
    struct queue *q;
    const int32_t *ids;
    assert_int_equal(queue_create(&q, 4, NULL), 0);
    struct stream *s = r.s = new_stream(q, &r, false);
    for (s->reply.n = 1; s->reply.n < 10; s->reply.n++)
        stream_publish(s, STREAM_DECODING);
    assert_int_equal(r.notices, 1);
    assert_int_equal(stream_tokens(s, &ids), 9);
    stream_publish(s, STREAM_DECODING); // the tenth
    assert_int_equal(r.notices, 2);
    assert_int_equal(stream_tokens(s, &ids), 10);
    stream_publish(s, STREAM_DECODING); // nothing new
    assert_int_equal(r.notices, 2);
    stream_publish(s, STREAM_PARKED);
    assert_int_equal(r.notices, 3);
    assert_false(atomic_load(&s->cancelled));
    stream_release(s); // cancels, and is not called any more
    assert_true(atomic_load(&s->cancelled));
    atomic_store(&s->notified, false);
    s->reply.n++;
    stream_publish(s, STREAM_DECODING);
    assert_int_equal(r.notices, 3);
    stream_finish(s, END_CALLER, NULL);
    assert_int_equal(r.notices, 3);
    stream_drop(s);
    queue_drop(q);
}

static void oldest_trees_are_lost(void **state) {
    (void)state;
    static struct member m = {.walk = {.count = 2, .path = {0, 2}, .chosen = {9, 11}}};
    struct queue *q;
    struct tree_event v;
    int64_t lost = -1;
    m.tree.n = 3;
    memcpy(m.tree.token, (int32_t[]){7, 8, 9}, 3 * sizeof(int32_t));
    memcpy(m.tree.parent, (int32_t[]){-1, 0, 0}, 3 * sizeof(int32_t));
    assert_int_equal(queue_create(&q, 4, NULL), 0);
    struct stream *s = new_stream(q, NULL, true);
    assert_false(stream_tree(s, &v, &lost));
    assert_int_equal(lost, 0);
    for (int i = 0; i < STREAM_TREES + 5; i++) {
        s->reply.steps++;
        s->reply.n += 2;
        stream_keep_tree(s, &m);
    }
    for (int i = 0; i < STREAM_TREES; i++) {
        assert_true(stream_tree(s, &v, &lost));
        assert_int_equal(v.step, i + 5);
        assert_int_equal(v.token, 2 * (i + 5));
        assert_int_equal(v.n, 3);
        assert_int_equal(v.id[2], 9);
        assert_int_equal(v.parent[2], 0);
        assert_int_equal(v.on[1], 2);
        assert_int_equal(v.bonus, 11);
        assert_int_equal(lost, 5);
    }
    assert_false(stream_tree(s, &v, &lost));
    stream_drop(s);
    stream_release(s);
    queue_drop(q);
}

static void a_queue_is_bounded(void **state) {
    (void)state;
    struct queue *q;
    struct err e = {0};
    bool end;
    struct stream *s[4];
    assert_int_equal(queue_create(&q, 3, NULL), 0);
    for (int i = 0; i < 4; i++)
        s[i] = new_stream(q, NULL, false);
    s[0]->next = s[1];
    assert_int_equal(queue_push(q, s[0], s[1], 2, &e), 0);
    s[2]->next = s[3];
    assert_int_equal(queue_push(q, s[2], s[3], 2, &e), ERR_LIMIT); // both or none
    s[2]->next = NULL;
    assert_int_equal(queue_push(q, s[2], s[2], 1, &e), 0);
    assert_int_equal(queue_waiting(q), 3);
    struct stream *first = queue_take(q, true, &end);
    assert_ptr_equal(first, s[0]);
    assert_ptr_equal(first->next->next, s[2]);
    assert_null(first->next->next->next);
    assert_false(end);
    assert_int_equal(queue_push(q, s[3], s[3], 1, &e), ERR_LIMIT); // taken, and not begun
    stream_cancel(s[1]); // its place is free at once, before the engine has looked
    assert_int_equal(queue_waiting(q), 2);
    queue_leave(q, s[1]); // when it has
    assert_int_equal(queue_waiting(q), 2);
    queue_refuse(q, ERR_STATE, "closed");
    assert_int_equal(queue_push(q, s[3], s[3], 1, &e), ERR_STATE);
    assert_string_equal(e.text, "closed");
    queue_refuse(q, 0, "");
    assert_int_equal(queue_push(q, s[3], s[3], 1, &e), 0);
    queue_end(q);
    assert_ptr_equal(queue_take(q, true, &end), s[3]);
    assert_true(end);
    for (int i = 0; i < 4; i++) {
        stream_drop(s[i]);
        stream_release(s[i]);
    }
    queue_drop(q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_once),
        cmocka_unit_test(notices_are_coalesced),
        cmocka_unit_test(oldest_trees_are_lost),
        cmocka_unit_test(a_queue_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
