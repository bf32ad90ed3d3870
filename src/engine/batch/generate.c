// SPDX-License-Identifier: Apache-2.0
// Batches that live for one call; see generate.h.
#include "engine/batch/generate.h"

#include <stdlib.h>
#include <string.h>

#include "engine/batch/batch.h"

// Sums over the replies, as they are now.
struct sums {
    int64_t tokens, drafted;
    bool decoding; // all are, and none has ended
};

static struct sums sums_of(struct job *const *jobs, const struct reply *y, int n) {
    struct sums s = {.decoding = true};
    for (int i = 0; i < n; i++) {
        s.tokens += y[i].n;
        s.drafted += y[i].drafted;
        s.decoding = s.decoding && job_decodes(jobs[i]) && !job_ended(jobs[i]);
    }
    return s;
}

// Steps until all jobs have ended; the first failure of a job is the error.
static int run_all(struct batch *b, struct job *const *jobs, const struct reply *y, int n,
                   struct generate_cost *cost, struct err *e) {
    for (int stepped = 1, rc = 0;;) {
        struct sums before = sums_of(jobs, y, n);
        rc = batch_step(b, &stepped, e);
        for (int i = 0; !rc && i < n; i++)
            rc = job_failed(jobs[i], e);
        if (rc || stepped == 0)
            return rc;
        if (!before.decoding || !cost)
            continue;
        struct sums after = sums_of(jobs, y, n);
        struct step_times ms = batch_times(b);
        cost->steps++;
        cost->tokens += after.tokens - before.tokens;
        cost->rows += after.drafted - before.drafted + n;
        step_times_add(&cost->ms, &ms);
    }
}

int session_generate_many(struct session *s, const struct request *r, int n, struct reply *out,
                          struct generate_cost *cost, struct err *e) {
    struct batch *b = NULL;
    struct job **jobs = calloc((size_t)n, sizeof *jobs);
    memset(out, 0, (size_t)n * sizeof *out);
    if (cost)
        *cost = (struct generate_cost){0};
    int rc = jobs ? 0 : err_set(e, ERR_MEMORY, "no memory for %d requests", n);
    if (!rc)
        rc = batch_create(&b, s, n, e);
    for (int i = 0; !rc && i < n; i++)
        rc = batch_join(b, &r[i], &out[i], &jobs[i], e);
    if (!rc)
        rc = run_all(b, jobs, out, n, cost, e);
    batch_destroy(b);
    free(jobs);
    return rc;
}

int session_generate(struct session *s, const struct request *r, struct reply *out, struct err *e) {
    return session_generate_many(s, r, 1, out, NULL, e);
}

int session_prefill(struct session *s, const int32_t *prompt, int64_t n, struct sequence **out,
                    struct err *e) {
    struct request r;
    struct reply y;
    struct sequence *seq = *out;
    if (seq && sequence_len(seq) == n)
        return 0;
    int rc = seq ? 0 : model_sequence(session_model(s), &seq, e);
    request_init(&r);
    r.prompt = prompt;
    r.n_prompt = n;
    r.max_tokens = 0;
    r.in_place = seq;
    if (!rc) {
        rc = session_generate(s, &r, &y, e);
        reply_fini(&y);
    }
    if (rc && !*out)
        sequence_destroy(seq);
    else
        *out = seq;
    return rc;
}
