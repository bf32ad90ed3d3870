// SPDX-License-Identifier: Apache-2.0
// Runs of `bench`: each prompt plainly first, then in the other modes, all compared with that.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bench/bench.h"

// Runs one prompt in one mode; the reply of plain decoding stays in *plain.
static int run_prompt_mode(struct bench *b, size_t i, int mode, struct request *r,
                           struct reply *plain, struct err *e) {
    const struct bench_prompt *p = &b->prompts.prompts[i];
    struct reply y = {0};
    int32_t *recording = calloc((size_t)(r->n_prompt + plain->n) + 1, sizeof *recording);
    int rc = recording ? 0 : err_set(e, ERR_MEMORY, "no memory for a recording of the prompt");
    if (!rc) {
        bench_mode_request(&b->modes, mode, b->a, b->s, plain, recording, r);
        rc = session_generate(b->s, r, &y, e);
    }
    if (!rc)
        rc = bench_add(b, p, mode, r, &y, mode == 0 || bench_equal(plain, &y), e);
    free(recording);
    if (rc || mode > 0)
        reply_fini(&y);
    else
        *plain = y;
    return rc;
}

// A random prompt is run once, all but its last token, and every mode goes on from there. It goes
// on itself where the one before ended, if that is how it begins.
static int prefill_random(struct bench *b, struct bench_prompt *p, const struct request *r,
                          struct err *e) {
    const struct sequence *last = b->prefix;
    int64_t n = r->n_prompt - 1, held = last ? sequence_len(last) : 0;
    if (held > n ||
        (held && memcmp(sequence_tokens(last), r->prompt, (size_t)held * sizeof *r->prompt))) {
        sequence_destroy(b->prefix);
        b->prefix = NULL;
        held = 0;
    }
    double start = clock_ms();
    int rc = session_prefill(b->s, r->prompt, n, &b->prefix, e);
    if (!rc)
        rc = exec_status(model_exec(session_model(b->s)), e);
    p->prefill_ms = clock_ms() - start;
    p->prefilled = n - held;
    return rc;
}

static int run_prompt(struct bench *b, size_t i, struct request *r, struct err *e) {
    struct bench_prompt *p = &b->prompts.prompts[i];
    struct reply plain = {0};
    int rc = 0;
    r->prefix = NULL;
    if (p->ids && p->n_ids > 1)
        rc = prefill_random(b, p, r, e);
    if (p->ids && p->n_ids > 1)
        r->prefix = b->prefix;
    for (int w = 0; w < b->modes.n && !rc && !cli_interrupted(); w++)
        rc = run_prompt_mode(b, i, w, r, &plain, e);
    if (rc)
        err_prefix(e, "prompt %s", p->id);
    r->prefix = NULL;
    reply_fini(&plain);
    return rc;
}

// A short run that is not counted, so that the first prompt does not pay for cold memory. Its
// budget is fixed: what a draft of random weights is worth must not be learnt from it.
static int warm_up_bench(struct bench *b, struct request *r, struct err *e) {
    struct reply y = {0};
    static const int32_t zero = 0;
    enum speculate last = b->modes.mode[b->modes.n - 1].how;
    r->prompt = &zero;
    r->n_prompt = 1;
    r->max_tokens = 16;
    r->auto_budget = false;
    r->how = last != SPECULATE_ORACLE ? last : session_draft(b->s) ? SPECULATE_TREE : SPECULATE_OFF;
    int rc = session_generate(b->s, r, &y, e);
    reply_fini(&y);
    return rc;
}

static int encode_prompt(struct bench *b, const struct bench_prompt *p, struct token_list *ids,
                         struct request *r, struct err *e) {
    r->prompt = p->ids;
    r->n_prompt = p->n_ids;
    if (p->ids)
        return 0;
    token_list_bound(ids, model_max_ctx(session_model(b->s)));
    int rc = session_encode(b->s, p->text, p->len, ids, e);
    r->prompt = ids->ids;
    r->n_prompt = (int64_t)ids->count;
    return rc ? err_prefix(e, "prompt %s", p->id) : 0;
}

int bench_run_prompts(struct bench *b, struct err *e) {
    struct request r;
    decode_request(b->a, b->s, &r);
    r.logit_hash = true;
    int64_t limit = r.max_tokens;
    bool limited = options_given(&b->a->opt, OPT_MAX_TOKENS);
    int rc = warm_up_bench(b, &r, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < b->prompts.n; i++) {
        const struct bench_prompt *p = &b->prompts.prompts[i];
        struct token_list ids = {0};
        rc = encode_prompt(b, p, &ids, &r, e);
        r.max_tokens = p->max_tokens ? p->max_tokens : limit;
        if (limited && r.max_tokens > limit)
            r.max_tokens = limit;
        if (!rc)
            rc = run_prompt(b, i, &r, e);
        token_list_fini(&ids);
        if (rc || cli_interrupted())
            return rc;
        if (cli_progress_wanted())
            fprintf(stderr, "\r%zu of %zu prompts", i + 1, b->prompts.n);
    }
    if (cli_progress_wanted())
        fputc('\n', stderr);
    return 0;
}
