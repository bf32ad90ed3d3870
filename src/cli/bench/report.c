// SPDX-License-Identifier: Apache-2.0
// Sums of `bench` over runs, where guesses were accepted among them, and how they are shown.
#include "cli/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum { GRAM = 4 };

void bench_accept_add(struct bench_accept *a, int64_t n_prompt, const int32_t *lengths,
                      int64_t steps) {
    int64_t context = n_prompt; // committed before the pass
    for (int64_t i = 0; i < steps; i++) {
        int span = guess_span_of(context);
        for (int d = 0; d < TREE_MAX_DEPTH && d + 1 < lengths[i]; d++)
            a->reached[d]++;
        a->span_steps[span]++;
        a->span_rows[span] += lengths[i];
        context += lengths[i];
    }
    a->steps += steps;
}

bool bench_accept_any(const struct bench_accept *a) {
    return a->reached[0] > 0;
}

static double depth_share(const struct bench_accept *a, int depth) {
    return (double)a->reached[depth] / (double)a->steps;
}

static double span_length(const struct bench_accept *a, int span) {
    return (double)a->span_rows[span] / (double)a->span_steps[span];
}

void bench_accept_text(const struct bench_accept *a, struct str *out) {
    for (int d = 0; d < TREE_MAX_DEPTH && a->reached[d]; d++) {
        char number[16];
        snprintf(number, sizeof number, "%.2f", depth_share(a, d));
        str_printf(out, "%s%s", d ? " " : "", number + (number[0] == '0')); // .82, 1.00
    }
    const char *before = "; AL in ";
    for (int i = 0; i < GUESS_SPANS; i++) {
        if (!a->span_steps[i])
            continue;
        str_printf(out, "%s%s %.2f", before, guess_spans[i].name, span_length(a, i));
        before = ", ";
    }
}

void bench_accept_json(const struct bench_accept *a, struct json_writer *w) {
    jw_key_begin(w, "accepted_by_depth", '[');
    for (int d = 0; d < TREE_MAX_DEPTH && a->reached[d]; d++)
        jw_num(w, depth_share(a, d));
    jw_end(w, ']');
    jw_key_begin(w, "accept_length_by_context", '[');
    for (int i = 0; i < GUESS_SPANS; i++) {
        if (!a->span_steps[i])
            continue;
        jw_begin(w, '{');
        jw_key_int(w, "from", guess_spans[i].from);
        jw_key(w, "to");
        if (guess_spans[i].to)
            jw_int(w, guess_spans[i].to);
        else
            jw_null(w);
        jw_key_int(w, "steps", a->span_steps[i]);
        jw_key_num(w, "accept_length", span_length(a, i));
        jw_end(w, '}');
    }
    jw_end(w, ']');
}

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

static double rate(const struct bench_sums *t) {
    return ratio((double)t->committed * 1000, decode_ms(&t->ms));
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

static void add_run(struct bench_sums *t, const struct request *r, const struct reply *y, bool same,
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
    bench_accept_add(&t->accept, r->n_prompt, y->accepted, y->steps);
    t->drafted += y->drafted;
    guess_counts_join(&t->guesses, &y->guesses);
    t->different += !same;
    t->grams += grams[0];
    t->distinct += grams[1];
    t->ms.prompt += y->ms.prompt;
    t->ms.draft += y->ms.draft;
    t->ms.verify += y->ms.verify;
    t->ms.sample += y->ms.sample;
    t->ms.commit += y->ms.commit;
    t->hash = t->prompts == 1 ? y->hash : rng_mix(t->hash ^ y->hash);
}

static void json_run(struct bench *b, const struct bench_prompt *p, int mode,
                     const struct request *r, const struct reply *y, bool same) {
    struct json_writer *w = &b->rows;
    jw_begin(w, '{');
    jw_key_str(w, "id", p->id);
    jw_key_str(w, "group", b->prompts.groups[p->group]);
    jw_key_str(w, "speculate", b->modes.mode[mode].name);
    jw_key_int(w, "prompt_tokens", r->n_prompt);
    decode_json_ids(w, "ids", y->ids, y->n);
    jw_key(w, "ms");
    decode_json_ms(w, session_load_ms(b->s), &y->ms, y->total_ms);
    jw_key_int(w, "steps", y->steps);
    decode_json_ids(w, "accept_lengths", y->accepted, y->steps);
    jw_key_int(w, "drafted", y->drafted);
    decode_json_hash(w, y->hash);
    jw_key_str(w, "end_reason", end_reason_name(y->end));
    jw_key_bool(w, "equal", same);
    jw_end(w, '}');
}

bool bench_equal(const struct reply *a, const struct reply *b) {
    return a->n == b->n && a->hash == b->hash && a->end == b->end &&
           memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids) == 0;
}

int bench_add(struct bench *b, const struct bench_prompt *p, int mode, const struct request *r,
              const struct reply *y, bool same, struct err *e) {
    int64_t grams[2];
    int rc = count_grams(y, &grams[0], &grams[1], e);
    if (rc)
        return rc;
    b->different += !same;
    add_run(&b->sums[p->group * BENCH_MODES + mode], r, y, same, grams);
    add_run(&b->sums[b->prompts.n_groups * BENCH_MODES + mode], r, y, same, grams);
    json_run(b, p, mode, r, y, same);
    return 0;
}

static double ms_per_step(const struct bench_sums *t) {
    return ratio(decode_ms(&t->ms), (double)t->steps);
}

static int width_of_names(const struct bench *b) {
    size_t width = 15;
    for (int i = 0; i < b->modes.n; i++)
        if (strlen(b->modes.mode[i].name) > width)
            width = strlen(b->modes.mode[i].name);
    return (int)width;
}

static void put_table_rows(const struct bench *b, int group, struct str *out) {
    const struct bench_sums *plain = &b->sums[group * BENCH_MODES];
    const char *name = group < b->prompts.n_groups ? b->prompts.groups[group] : "all";
    for (int w = 0; w < b->modes.n; w++) {
        const struct bench_sums *t = &b->sums[group * BENCH_MODES + w];
        double accepted = ratio((double)(t->committed - t->steps), (double)t->drafted);
        double steps = t->steps ? (double)t->steps : 1;
        str_printf(out,
                   "%-12.12s %-*s %7lld %8.1f %6.2f %6.1f%% %7.2fx %7.3f %7.3f %7.3f %7.3f %7.3f "
                   "%6.2f  %-5s  %016llx\n",
                   name, width_of_names(b), b->modes.mode[w].name, (long long)t->tokens, rate(t),
                   ratio((double)t->committed, (double)t->steps), 100 * accepted,
                   ratio(rate(t), rate(plain)), ms_per_step(t), t->ms.draft / steps,
                   t->ms.verify / steps, t->ms.sample / steps, t->ms.commit / steps,
                   ratio((double)t->distinct, (double)t->grams), t->different ? "NO" : "yes",
                   (unsigned long long)t->hash);
    }
}

// Whose candidates a mode's are.
static void put_drafters(const struct bench *b, int mode, const char *names[PRICE_DRAFTS]) {
    session_draft_names(b->s, names);
    if (b->modes.mode[mode].how == SPECULATE_ORACLE)
        names[0] = "oracle";
}

const char *bench_draft_ran(const struct session *s) {
    const struct draft *draft = session_draft(s);
    return !draft ? "no draft" : draft_path(draft) ? "no, its passes for guesses did not" : "yes";
}

// Of each mode that guessed, over all prompts.
static void put_acceptance(const struct bench *b, struct str *out) {
    const struct bench_sums *t = &b->sums[b->prompts.n_groups * BENCH_MODES];
    const char *names[PRICE_DRAFTS];
    bool any = false;
    for (int w = 0; w < b->modes.n; w++)
        any |= bench_accept_any(&t[w].accept);
    if (any)
        str_puts(out,
                 "share of passes whose guess at depth 1, 2, ... was accepted; accept length by "
                 "tokens of context\n");
    for (int w = 0; w < b->modes.n; w++) {
        if (!bench_accept_any(&t[w].accept))
            continue;
        str_printf(out, "%-*s ", width_of_names(b), b->modes.mode[w].name);
        bench_accept_text(&t[w].accept, out);
        str_putc(out, '\n');
    }
    if (any)
        str_puts(out, "guesses accepted of those verified, by drafter (and by depth)\n");
    for (int w = 0; w < b->modes.n; w++) {
        if (!bench_accept_any(&t[w].accept))
            continue;
        str_printf(out, "%-*s ", width_of_names(b), b->modes.mode[w].name);
        put_drafters(b, w, names);
        guess_counts_text(&t[w].guesses, names, out);
        str_putc(out, '\n');
    }
}

// Rate of a mode with a chosen budget over that of the best fixed one; its index in *best.
static double of_best(const struct bench *b, int group, int mode, int *best) {
    const struct bench_sums *t = &b->sums[group * BENCH_MODES];
    double rates[BENCH_MODES];
    for (int i = 0; i < b->modes.n; i++)
        rates[i] = rate(&t[i]);
    *best = bench_modes_best(&b->modes, mode, rates);
    return ratio(rates[mode], rates[*best]);
}

static void put_chosen_budgets(const struct bench *b, struct str *out) {
    for (int i = 0, best; i < b->modes.n; i++) {
        if (!b->modes.mode[i].choose)
            continue;
        double share = of_best(b, b->prompts.n_groups, i, &best);
        str_printf(out, "%s: %.1f %% of the best fixed mode, %s\n", b->modes.mode[i].name,
                   100 * share, b->modes.mode[best].name);
    }
}

static void put_notes(const struct bench *b, struct str *out) {
    struct exec *x = model_exec(session_model(b->s));
    struct exec_memory m;
    exec_memory_of(x, &m);
    str_printf(
        out,
        "pass and phases are milliseconds per pass; %d threads, %s; %zu prompts; equal: same "
        "tokens, same logit hash as plain decoding\n",
        exec_threads(x), exec_ops(x)->name, b->prompts.n);
    const struct bench_oracle *o = &b->modes.oracle;
    if (o->on) {
        str_printf(out, "oracle: guesses are not the draft's but a recording of plain decoding "
                        "with errors, set to ");
        if (o->synth_length > 0)
            str_printf(out, "a mean accept length of %g of a chain", o->synth_length);
        else if (o->n_synth > 0)
            str_puts(out, "these chances by depth: ");
        else if (o->n_rates == 0)
            str_printf(out, "an accept length of %g", o->accept_length);
        for (int i = 0; i < o->n_synth; i++)
            str_printf(out, "%s%g", i ? ", " : "", o->synth_rate[i]);
        for (int i = 0; i < o->n_rates; i++)
            str_printf(out, "%s%g", i ? ", " : "a rate of ", o->rate[i]);
        str_printf(out, "; the draft ran at full cost: %s\n", bench_draft_ran(b->s));
    }
    put_chosen_budgets(b, out);
    for (size_t i = 0; i < b->prompts.n; i++) {
        const struct bench_prompt *p = &b->prompts.prompts[i];
        if (p->prefill_ms > 0)
            str_printf(out, "prompt %s, once for all modes: %.1f ms, %.0f tok/s%s\n", p->id,
                       p->prefill_ms, (double)p->prefilled * 1000 / p->prefill_ms,
                       p->prefilled < p->n_ids - 1 ? " after the one before" : "");
    }
    str_printf(out, "loaded in %.0f ms\n", session_load_ms(b->s));
    if (m.total > 0)
        str_printf(out, "device memory: at most %.2f GiB held, of %.2f GiB\n",
                   (double)m.peak / (1 << 30), (double)m.total / (1 << 30));
}

int bench_print_table(const struct bench *b, struct err *e) {
    struct str out = {0};
    str_printf(&out, "%-12s %-*s %7s %8s %6s %7s %8s %7s %7s %7s %7s %7s %6s  %-5s  %s\n", "group",
               width_of_names(b), "how", "tokens", "tok/s", "AL", "accept", "speed", "pass",
               "draft", "verify", "sample", "commit", "4-gram", "equal", "logit hash");
    for (int g = 0; g < b->prompts.n_groups + (b->prompts.n_groups > 1); g++)
        put_table_rows(b, g, &out);
    put_acceptance(b, &out);
    put_notes(b, &out);
    return cli_print(&out, e);
}

static void put_sums(struct json_writer *w, const struct bench_sums *t,
                     const struct bench_sums *plain, const char *const *drafts) {
    jw_begin(w, '{');
    jw_key_int(w, "prompts", t->prompts);
    jw_key_int(w, "prompt_tokens", t->prompt_tokens);
    jw_key_int(w, "tokens", t->tokens);
    jw_key_int(w, "steps", t->steps);
    jw_key_int(w, "drafted", t->drafted);
    jw_key_num(w, "accept_length", ratio((double)t->committed, (double)t->steps));
    jw_key_num(w, "accept_rate", ratio((double)(t->committed - t->steps), (double)t->drafted));
    jw_key_num(w, "tokens_per_second", rate(t));
    jw_key_num(w, "speed_up", ratio(rate(t), rate(plain)));
    jw_key_num(w, "distinct_4grams", ratio((double)t->distinct, (double)t->grams));
    jw_key_num(w, "worst_distinct_4grams", t->worst_distinct);
    jw_key_int(w, "different", t->different);
    decode_json_hash(w, t->hash);
    bench_accept_json(&t->accept, w);
    jw_key(w, "guesses");
    guess_counts_json(&t->guesses, drafts, w);
    jw_key(w, "ms");
    decode_json_ms(w, 0, &t->ms, t->ms.prompt + decode_ms(&t->ms));
    jw_end(w, '}');
}

static void json_group(struct json_writer *w, const struct bench *b, int group) {
    const struct bench_sums *t = &b->sums[group * BENCH_MODES];
    jw_begin(w, '{');
    const char *names[PRICE_DRAFTS];
    for (int i = 0; i < b->modes.n; i++) {
        jw_key(w, b->modes.mode[i].name);
        put_drafters(b, i, names);
        put_sums(w, &t[i], t, names);
    }
    jw_end(w, '}');
}

static void json_chosen(struct json_writer *w, const struct bench *b) {
    jw_begin(w, '{');
    for (int i = 0, best; i < b->modes.n; i++) {
        if (!b->modes.mode[i].choose)
            continue;
        double share = of_best(b, b->prompts.n_groups, i, &best);
        jw_key_begin(w, b->modes.mode[i].name, '{');
        jw_key_str(w, "best_fixed", b->modes.mode[best].name);
        jw_key_num(w, "share", share);
        jw_end(w, '}');
    }
    jw_end(w, '}');
}

int bench_print_json(struct bench *b, struct err *e) {
    struct json_writer w = {0};
    jw_begin(&w, '{');
    jw_key_str(&w, "model", options_str(&b->a->opt, OPT_MODEL));
    jw_key_int(&w, "threads", exec_threads(model_exec(session_model(b->s))));
    jw_key_str(&w, "cpu_level", exec_ops(model_exec(session_model(b->s)))->name);
    jw_key(&w, "budget");
    bool choose;
    jw_int(&w, decode_budget(b->a, &choose));
    jw_key_bool(&w, "budget_auto", choose);
    jw_key_num(&w, "temperature", options_float(&b->a->opt, OPT_TEMP));
    jw_key(&w, "oracle");
    if (b->modes.oracle.accept_length > 0)
        jw_num(&w, b->modes.oracle.accept_length);
    else
        jw_null(&w);
    if (b->modes.oracle.synth_length > 0)
        jw_key_num(&w, "oracle_synth_len", b->modes.oracle.synth_length);
    if (b->modes.oracle.n_synth > 0) {
        jw_key_begin(&w, "oracle_synth_rates", '[');
        for (int i = 0; i < b->modes.oracle.n_synth; i++)
            jw_num(&w, b->modes.oracle.synth_rate[i]);
        jw_end(&w, ']');
    }
    jw_key_begin(&w, "oracle_errors", '[');
    for (int i = 0; i < b->modes.oracle.n_rates; i++)
        jw_num(&w, b->modes.oracle.rate[i]);
    jw_end(&w, ']');
    jw_key(&w, "chosen");
    json_chosen(&w, b);
    jw_key_num(&w, "load_ms", session_load_ms(b->s));
    struct exec_memory m;
    exec_memory_of(model_exec(session_model(b->s)), &m);
    jw_key_int(&w, "device_peak_bytes", m.peak);
    jw_key_begin(&w, "prefill_ms", '[');
    for (size_t i = 0; i < b->prompts.n; i++)
        jw_num(&w, b->prompts.prompts[i].prefill_ms);
    jw_end(&w, ']');
    jw_key_begin(&w, "prefill_tokens", '[');
    for (size_t i = 0; i < b->prompts.n; i++)
        jw_int(&w, b->prompts.prompts[i].prefilled);
    jw_end(&w, ']');
    jw_key_bool(&w, "equal", b->different == 0);
    jw_key(&w, "overall");
    json_group(&w, b, b->prompts.n_groups);
    jw_key_begin(&w, "groups", '{');
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
