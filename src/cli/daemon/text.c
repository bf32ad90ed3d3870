// SPDX-License-Identifier: Apache-2.0
// The pair and what it generates; see daemon.h.
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "cli/daemon/daemon.h"

int daemon_load(struct daemon *d, struct err *e) {
    if (d->s)
        return 0;
    int rc = session_open(&d->s, &d->options, e);
    if (!rc)
        daemon_lend(d);
    return rc;
}

void daemon_unload(struct daemon *d) {
    transcript_destroy(d->text);
    d->text = NULL;
    daemon_slots_park(d);
    session_close(d->s);
    d->s = NULL;
    daemon_lend(d);
}

struct receiver {
    struct daemon *d;
    bool streams;
    int rc;
    struct err *e;
};

static int take_tokens(void *arg, const int32_t *ids, int64_t n) {
    struct receiver *r = arg;
    if (r->streams && !r->rc)
        r->rc = daemon_emit(r->d, ids, n, r->e);
    return r->rc;
}

// A fresh text that begins with what the best slot has in common with the prompt.
static int begin(struct daemon *d, const struct daemon_task *task, int64_t *common, struct err *e) {
    int from = daemon_slot_best(d, task, common);
    transcript_destroy(d->text);
    d->text = NULL;
    int rc = transcript_create(&d->text, d->s, e);
    if (rc || from < 0)
        return rc;
    rc = transcript_restore(d->text, d->slots[from].state, e);
    return rc ? rc : transcript_cut(d->text, *common, e);
}

// Runs the first snap_at tokens and keeps them. *ms: what that took.
static int keep_begin(struct daemon *d, const struct daemon_task *task, const struct request *r,
                      double *ms, struct err *e) {
    struct request q = *r;
    struct reply y = {0};
    int64_t have = transcript_len(d->text);
    int rc = have > task->snap_at ? transcript_cut(d->text, task->snap_at, e) : 0;
    if (!rc && have < task->snap_at)
        rc = transcript_append(d->text, task->prompt.at + have, task->snap_at - have, e);
    q.max_tokens = 0;
    if (!rc)
        rc = transcript_generate(d->text, &q, &y, e);
    *ms = y.ms.prompt;
    reply_fini(&y);
    if (!rc)
        rc = daemon_slot_save(d, task->snap_slot, false, e);
    if (!rc)
        daemon_say(d, "[snap] inline slot=%d cur_pos=%lld", task->snap_slot,
                   (long long)task->snap_at);
    return rc;
}

static void fill_request(const struct daemon *d, const struct daemon_task *task,
                         struct request *r) {
    decode_request(d->a, d->s, r);
    if (d->draft_parked && r->how <= SPECULATE_CHAIN)
        r->how = SPECULATE_OFF;
    if (task->sampled)
        r->sample = task->sample;
    r->max_tokens = task->n_gen;
}

static int generate(struct daemon *d, const struct daemon_task *task, struct daemon_answer *out,
                    struct err *e) {
    struct receiver to = {d, task->streams, 0, e};
    struct request r;
    struct reply y = {0};
    int64_t common = 0;
    double begun = 0;
    fill_request(d, task, &r);
    int rc = begin(d, task, &common, e);
    out->reused = rc ? 0 : transcript_ready(d->text);
    if (!rc && task->snap_at > 0 && task->snap_at <= task->prompt.n)
        rc = keep_begin(d, task, &r, &begun, e);
    int64_t have = rc ? 0 : transcript_len(d->text);
    if (!rc)
        rc = transcript_append(d->text, task->prompt.at + have, task->prompt.n - have, e);
    r.tokens = take_tokens;
    r.tokens_arg = &to;
    if (!rc)
        rc = transcript_generate(d->text, &r, &y, e);
    if (!rc && to.rc)
        rc = to.rc;
    out->prompt_s = (begun + y.ms.prompt) / 1e3;
    out->decode_s = (y.total_ms - y.ms.prompt) / 1e3;
    if (!rc)
        rc = vec_reserve(&out->ids.at, &out->ids.cap, y.n + 1, sizeof *out->ids.at, e);
    if (!rc && y.n)
        memcpy(out->ids.at, y.ids, (size_t)y.n * sizeof *y.ids);
    out->ids.n = rc ? 0 : y.n;
    reply_fini(&y);
    return rc;
}

int daemon_generate(struct daemon *d, const struct daemon_task *task, struct daemon_answer *out,
                    struct err *e) {
    struct request r;
    *out = (struct daemon_answer){0};
    fill_request(d, task, &r);
    r.prompt = task->prompt.at;
    r.n_prompt = task->prompt.n;
    int rc = request_check(&r, d->s, e);
    if (rc) // nothing has changed
        return rc;
    rc = generate(d, task, out, e);
    if (rc) { // what is left of a text that failed is nothing to go on from
        transcript_destroy(d->text);
        d->text = NULL;
    }
    return rc;
}
