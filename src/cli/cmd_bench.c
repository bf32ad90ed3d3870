// SPDX-License-Identifier: Apache-2.0
// `coppice bench`: the ways of decoding side by side on a file of prompts. Each prompt runs plainly
// first; every other way must then give the same tokens from the same logits. Sums are kept per
// group and way, so that means weigh tokens and passes, not prompts.
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cli/bench_prompts.h"
#include "cli/decode.h"

enum { WAYS = 4, GRAM = 4 };

// Sums over runs of one way.
struct tally {
    int64_t prompts, prompt_tokens, tokens, steps, committed, drafted, different;
    int64_t grams, distinct;
    double worst_distinct; // lowest share of distinct 4-grams of one continuation
    struct step_times ms;
};

struct bench {
    const struct cli_args *a;
    struct session *s;
    struct bench_prompts prompts;
    enum speculate ways[WAYS];
    int n_ways;
    struct tally *tallies; // [groups + 1][WAYS]; the last row is all prompts
    struct json_writer rows;
    int64_t different;
};

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

static double decode_ms(const struct tally *t) {
    return t->ms.draft + t->ms.verify + t->ms.sample + t->ms.commit;
}

static double rate(const struct tally *t) {
    return ratio((double)t->committed * 1000, decode_ms(t));
}

static int by_value(const void *x, const void *y) {
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

// Counts 4-grams and distinct ones (by 64-bit hash) of a continuation.
static int count_grams(const struct reply *y, int64_t *grams, int64_t *distinct, struct err *e) {
    *grams = y->n >= GRAM ? y->n - GRAM + 1 : 0;
    *distinct = 0;
    if (*grams == 0)
        return 0;
    uint64_t *h = malloc((size_t)*grams * sizeof *h);
    if (!h)
        return err_set(e, ERR_MEMORY, "no memory to count %lld 4-grams", (long long)*grams);
    for (int64_t i = 0; i < *grams; i++) {
        h[i] = 0;
        for (int j = 0; j < GRAM; j++)
            h[i] = rng_hash(h[i], (uint64_t)y->ids[i + j], 0, 0);
    }
    qsort(h, (size_t)*grams, sizeof *h, by_value);
    for (int64_t i = 0; i < *grams; i++)
        *distinct += i == 0 || h[i] != h[i - 1];
    free(h);
    return 0;
}

static void add_run(struct tally *t, const struct request *r, const struct reply *y, bool same,
                    const int64_t grams[2]) {
    double share = grams[0] ? (double)grams[1] / (double)grams[0] : 1;
    if (t->prompts == 0 || share < t->worst_distinct)
        t->worst_distinct = share;
    t->prompts++;
    t->prompt_tokens += r->n_prompt;
    t->tokens += y->n;
    t->steps += y->steps;
    for (int64_t i = 0; i < y->steps; i++)
        t->committed += y->accepted[i];
    t->drafted += y->drafted;
    t->different += !same;
    t->grams += grams[0];
    t->distinct += grams[1];
    t->ms.prompt += y->ms.prompt;
    t->ms.draft += y->ms.draft;
    t->ms.verify += y->ms.verify;
    t->ms.sample += y->ms.sample;
    t->ms.commit += y->ms.commit;
}

static void json_run(struct bench *b, const struct bench_prompt *p, const struct request *r,
                     const struct reply *y, bool same) {
    struct json_writer *w = &b->rows;
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)y->hash);
    jw_begin(w, '{');
    jw_key(w, "id");
    jw_cstr(w, p->id);
    jw_key(w, "group");
    jw_cstr(w, b->prompts.groups[p->group]);
    jw_key(w, "speculate");
    jw_cstr(w, speculate_name(r->how));
    jw_key(w, "prompt_tokens");
    jw_int(w, r->n_prompt);
    decode_json_ids(w, "ids", y->ids, y->n);
    jw_key(w, "ms");
    decode_json_ms(w, session_load_ms(b->s), &y->ms, y->total_ms);
    jw_key(w, "steps");
    jw_int(w, y->steps);
    decode_json_ids(w, "accept_lengths", y->accepted, y->steps);
    jw_key(w, "drafted");
    jw_int(w, y->drafted);
    jw_key(w, "logit_hash");
    jw_cstr(w, hash);
    jw_key(w, "end_reason");
    jw_cstr(w, end_reason_name(y->end));
    jw_key(w, "equal");
    jw_bool(w, same);
    jw_end(w, '}');
}

static bool equal(const struct reply *a, const struct reply *b) {
    return a->n == b->n && a->hash == b->hash && a->end == b->end &&
           memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids) == 0;
}

// Runs one prompt every way. plain: its reply the first way, kept for comparison.
static int run_prompt(struct bench *b, size_t i, struct request *r, struct err *e) {
    const struct bench_prompt *p = &b->prompts.prompts[i];
    struct reply plain = {0};
    int rc = 0;
    for (int w = 0; w < b->n_ways && !rc; w++) {
        struct reply y = {0};
        int64_t grams[2] = {0};
        r->how = b->ways[w];
        rc = session_generate(b->s, r, &y, e);
        if (!rc)
            rc = count_grams(&y, &grams[0], &grams[1], e);
        if (rc) {
            err_prefix(e, "prompt %s", p->id);
            reply_fini(&y);
            break;
        }
        bool same = w == 0 || equal(&plain, &y);
        b->different += !same;
        add_run(&b->tallies[p->group * WAYS + w], r, &y, same, grams);
        add_run(&b->tallies[b->prompts.n_groups * WAYS + w], r, &y, same, grams);
        json_run(b, p, r, &y, same);
        if (w == 0)
            plain = y;
        else
            reply_fini(&y);
    }
    reply_fini(&plain);
    return rc;
}

// A short run that is not counted, so that the first prompt does not pay for cold memory.
static int warm_up(struct bench *b, struct request *r, struct err *e) {
    struct reply y = {0};
    static const int32_t zero = 0;
    r->prompt = &zero;
    r->n_prompt = 1;
    r->max_tokens = 16;
    r->how = b->ways[b->n_ways - 1];
    int rc = session_generate(b->s, r, &y, e);
    reply_fini(&y);
    return rc;
}

static int run_all(struct bench *b, struct err *e) {
    struct request r;
    decode_request(b->a, b->s, &r);
    r.logit_hash = true;
    int64_t limit = r.max_tokens;
    bool limited = options_given(&b->a->opt, OPT_MAX_TOKENS);
    int rc = warm_up(b, &r, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < b->prompts.n; i++) {
        const struct bench_prompt *p = &b->prompts.prompts[i];
        struct token_list ids = {0};
        rc = session_encode(b->s, p->text, p->len, &ids, e);
        if (rc)
            err_prefix(e, "prompt %s", p->id);
        r.prompt = ids.ids;
        r.n_prompt = (int64_t)ids.count;
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

static void table_rows(const struct bench *b, int group, struct str *out) {
    const struct tally *plain = &b->tallies[group * WAYS];
    const char *name = group < b->prompts.n_groups ? b->prompts.groups[group] : "all";
    for (int w = 0; w < b->n_ways; w++) {
        const struct tally *t = &b->tallies[group * WAYS + w];
        double accepted = ratio((double)(t->committed - t->steps), (double)t->drafted);
        double steps = t->steps ? (double)t->steps : 1;
        str_printf(out,
                   "%-12.12s %-7s %7lld %8.1f %6.2f %6.1f%% %7.2fx %7.3f %7.3f %7.3f %7.3f %6.2f"
                   "  %s\n",
                   name, speculate_name(b->ways[w]), (long long)t->tokens, rate(t),
                   ratio((double)t->committed, (double)t->steps), 100 * accepted,
                   ratio(rate(t), rate(plain)), t->ms.draft / steps, t->ms.verify / steps,
                   t->ms.sample / steps, t->ms.commit / steps,
                   ratio((double)t->distinct, (double)t->grams), t->different ? "NO" : "yes");
    }
}

static int print_table(const struct bench *b, struct err *e) {
    struct str out = {0};
    str_printf(&out, "%-12s %-7s %7s %8s %6s %7s %8s %7s %7s %7s %7s %6s  %s\n", "group", "how",
               "tokens", "tok/s", "AL", "accept", "speed", "draft", "verify", "sample", "commit",
               "4-gram", "equal");
    for (int g = 0; g <= b->prompts.n_groups; g++)
        table_rows(b, g, &out);
    str_printf(&out,
               "phases are milliseconds per pass; %d threads, %s; %zu prompts; equal: same "
               "tokens, same logit hash as plain decoding\n",
               exec_threads(model_exec(session_model(b->s))),
               exec_ops(model_exec(session_model(b->s)))->name, b->prompts.n);
    return cli_print(&out, e);
}

static void json_tally(struct json_writer *w, const struct tally *t, const struct tally *plain) {
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"prompts", (double)t->prompts},
        {"prompt_tokens", (double)t->prompt_tokens},
        {"tokens", (double)t->tokens},
        {"steps", (double)t->steps},
        {"drafted", (double)t->drafted},
        {"accept_length", ratio((double)t->committed, (double)t->steps)},
        {"accept_rate", ratio((double)(t->committed - t->steps), (double)t->drafted)},
        {"tokens_per_second", rate(t)},
        {"speed_up", ratio(rate(t), rate(plain))},
        {"distinct_4grams", ratio((double)t->distinct, (double)t->grams)},
        {"worst_distinct_4grams", t->worst_distinct},
        {"different", (double)t->different},
    };
    jw_begin(w, '{');
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        jw_key(w, numbers[i].name);
        jw_num(w, numbers[i].value);
    }
    jw_key(w, "ms");
    decode_json_ms(w, 0, &t->ms, t->ms.prompt + decode_ms(t));
    jw_end(w, '}');
}

static void json_group(struct json_writer *w, const struct bench *b, int group) {
    const struct tally *t = &b->tallies[group * WAYS];
    jw_begin(w, '{');
    for (int i = 0; i < b->n_ways; i++) {
        jw_key(w, speculate_name(b->ways[i]));
        json_tally(w, &t[i], t);
    }
    jw_end(w, '}');
}

static int print_json(struct bench *b, struct err *e) {
    struct json_writer w = {0};
    jw_begin(&w, '{');
    jw_key(&w, "model");
    jw_cstr(&w, options_str(&b->a->opt, OPT_MODEL));
    jw_key(&w, "threads");
    jw_int(&w, exec_threads(model_exec(session_model(b->s))));
    jw_key(&w, "cpu_level");
    jw_cstr(&w, exec_ops(model_exec(session_model(b->s)))->name);
    jw_key(&w, "budget");
    jw_int(&w, options_int(&b->a->opt, OPT_BUDGET));
    jw_key(&w, "temperature");
    jw_num(&w, options_float(&b->a->opt, OPT_TEMP));
    jw_key(&w, "equal");
    jw_bool(&w, b->different == 0);
    jw_key(&w, "overall");
    json_group(&w, b, b->prompts.n_groups);
    jw_key(&w, "groups");
    jw_begin(&w, '{');
    for (int g = 0; g < b->prompts.n_groups; g++) {
        jw_key(&w, b->prompts.groups[g]);
        json_group(&w, b, g);
    }
    jw_end(&w, '}');
    jw_key(&w, "runs");
    str_append(&w.out, b->rows.out.data, b->rows.out.len);
    jw_end(&w, '}');
    return cli_print_json(&w, e);
}

static void choose_ways(struct bench *b) {
    static const enum speculate all[WAYS] = {SPECULATE_OFF, SPECULATE_LOOKUP, SPECULATE_CHAIN,
                                             SPECULATE_TREE};
    b->n_ways = session_draft(b->s) ? WAYS : 2;
    memcpy(b->ways, all, sizeof all);
}

static int bench(struct bench *b, struct err *e) {
    int rc = bench_prompts_read(&b->prompts, options_str(&b->a->opt, OPT_PROMPTS), e);
    if (!rc)
        rc = decode_open(b->a, false, &b->s, e);
    if (rc)
        return rc;
    choose_ways(b);
    b->tallies = calloc((size_t)(b->prompts.n_groups + 1) * WAYS, sizeof *b->tallies);
    if (!b->tallies)
        return err_set(e, ERR_MEMORY, "no memory for the sums of %d groups", b->prompts.n_groups);
    cli_catch_interrupt();
    jw_begin(&b->rows, '[');
    rc = run_all(b, e);
    jw_end(&b->rows, ']');
    if (!rc && b->rows.out.failed)
        rc = err_set(e, ERR_MEMORY, "no memory for the results");
    if (rc || cli_interrupted())
        return rc;
    rc = options_flag(&b->a->opt, OPT_JSON) ? print_json(b, e) : print_table(b, e);
    if (!rc && b->different)
        rc = err_set(e, ERR_STATE, "%lld runs differ from plain decoding; please report this",
                     (long long)b->different);
    return rc;
}

int cmd_bench(const struct cli_args *a, struct err *e) {
    int rc = cli_need(a, OPT_PROMPTS, e);
    if (rc)
        return rc;
    struct bench b = {.a = a};
    rc = bench(&b, e);
    str_fini(&b.rows.out);
    free(b.tallies);
    session_close(b.s);
    bench_prompts_fini(&b.prompts);
    return rc;
}
