// SPDX-License-Identifier: Apache-2.0
// `coppice profile`: where the time of one step goes. The same tokens are decoded four times:
// plainly and by a tree, each once without timing, for the step as it is, and once with every op
// timed. Guesses come from the recording of the plain run, so that commits have real lengths.
#include <stdlib.h>
#include <string.h>

#include "cli/bench/modes.h"
#include "cli/bench/prompts.h"
#include "ops/observe/timing.h"

struct profile {
    const struct cli_args *a;
    struct session *s;
    struct bench_modes modes; // off and one tree
    int32_t *prompt, *recording;
    int64_t n_prompt, n_new;
    struct sequence *prefix;
    double copy_rate; // bytes per millisecond
    struct str text;
    struct json_writer json;
};

// The cost of a step of a run: as it is, and the sums of its timed ops.
struct step_cost {
    const char *name;
    int64_t steps, tokens, drafted;
    double wall_ms, ops_ms, floor_ms;
};

static double step_ms(const struct reply *y) {
    return y->steps ? decode_ms(&y->ms) / (double)y->steps : 0;
}

static int make_profile_prompt(struct profile *p, struct err *e) {
    const struct options *o = &p->a->opt;
    int64_t vocab = model_params_of(session_model(p->s))->vocab;
    size_t n;
    const int32_t *lengths = options_list(o, OPT_PROMPT_TOKENS, &n);
    if (n > 1)
        return err_set(e, ERR_USAGE, "a profile is of one prompt; give --prompt-tokens one length");
    p->n_prompt = n ? lengths[0] : 512;
    p->n_new = options_given(o, OPT_MAX_TOKENS) ? options_int(o, OPT_MAX_TOKENS) : 128;
    p->prompt = calloc((size_t)p->n_prompt, sizeof *p->prompt);
    p->recording = calloc((size_t)(p->n_prompt + p->n_new) + 1, sizeof *p->recording);
    if (!p->prompt || !p->recording)
        return err_set(e, ERR_MEMORY, "no memory for a prompt of %lld tokens",
                       (long long)p->n_prompt);
    bench_random_ids(p->prompt, p->n_prompt, (uint64_t)options_int(o, OPT_SEED), vocab);
    if (p->n_new < 2)
        return err_set(e, ERR_USAGE, "a profile needs at least two new tokens; use -n 128");
    return p->n_prompt > 1 ? session_prefill(p->s, p->prompt, p->n_prompt - 1, &p->prefix, e) : 0;
}

// The prompt's pass is not part of a step.
static bool of_step(const struct timing_row *r) {
    return strcmp(r->section, "prompt") != 0 && r->calls > 0;
}

static int compare_times(const void *a, const void *b) {
    const struct timing_row *x = a, *y = b;
    int section = strcmp(x->section, y->section);
    if (section)
        return section;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

static void put_op_json(struct profile *p, const struct timing_row *r, double steps) {
    struct json_writer *w = &p->json;
    jw_begin(w, '{');
    jw_key_str(w, "section", r->section);
    jw_key_str(w, "op", r->op);
    jw_key_str(w, "kind", timing_kind_name(r->kind));
    jw_key_num(w, "calls", (double)r->calls / steps);
    jw_key_num(w, "us", r->ms * 1000 / steps);
    jw_key_num(w, "bytes", r->bytes / steps);
    jw_key_num(w, "floor_us", p->copy_rate > 0 ? r->bytes / p->copy_rate * 1000 / steps : 0);
    jw_end(w, '}');
}

static void print_line(struct profile *p, const char *section, const char *op, double calls,
                       double ms, double bytes) {
    double floor = p->copy_rate > 0 ? bytes / p->copy_rate : 0;
    str_printf(&p->text, "%-8s %-44s %7.1f %10.1f %10.2f %10.1f %6.1f%%\n", section, op, calls,
               ms * 1000, bytes * 1e-6, floor * 1000, ms > 0 ? 100 * floor / ms : 0);
}

static void print_kinds(struct profile *p, const struct timing_row *rows, int n, double steps) {
    for (int k = 0; k < TIMING_KINDS; k++) {
        double ms = 0, bytes = 0, calls = 0;
        for (int i = 0; i < n; i++) {
            if (!of_step(&rows[i]) || rows[i].kind != (enum timing_kind)k)
                continue;
            ms += rows[i].ms;
            bytes += rows[i].bytes;
            calls += (double)rows[i].calls;
        }
        if (calls > 0)
            print_line(p, "all", timing_kind_name((enum timing_kind)k), calls / steps, ms / steps,
                       bytes / steps);
    }
}

static int print_ops(struct profile *p, struct step_cost *c, struct err *e) {
    int n;
    double steps = (double)c->steps, calls = 0;
    const struct timing_row *found = timing_rows(model_exec(session_model(p->s)), &n);
    struct timing_row *rows = calloc((size_t)n + 1, sizeof *rows);
    if (!rows)
        return err_set(e, ERR_MEMORY, "no memory for %d ops", n);
    memcpy(rows, found, (size_t)n * sizeof *rows);
    qsort(rows, (size_t)n, sizeof *rows, compare_times);
    for (int i = 0; i < n; i++) {
        const struct timing_row *r = &rows[i];
        if (!of_step(r))
            continue;
        c->ops_ms += r->ms / steps;
        c->floor_ms += p->copy_rate > 0 ? r->bytes / p->copy_rate / steps : 0;
        calls += (double)r->calls / steps;
        print_line(p, r->section, r->op, (double)r->calls / steps, r->ms / steps, r->bytes / steps);
        put_op_json(p, r, steps);
    }
    print_kinds(p, rows, n, steps);
    print_line(p, "all", "sum of ops", calls, c->ops_ms, c->floor_ms * p->copy_rate);
    free(rows);
    return 0;
}

static void put_cost_json(struct json_writer *w, const struct step_cost *c) {
    jw_key_int(w, "steps", c->steps);
    jw_key_num(w, "accept_length", (double)c->tokens / (double)c->steps);
    jw_key_num(w, "rows", 1 + (double)c->drafted / (double)c->steps);
    jw_key_num(w, "step_ms", c->wall_ms);
    jw_key_num(w, "ops_ms", c->ops_ms);
    jw_key_num(w, "floor_ms", c->floor_ms);
}

// Decodes in one mode without and with timing and reports.
static int profile_mode(struct profile *p, int mode, struct reply *plain, struct err *e) {
    struct exec *x = model_exec(session_model(p->s));
    struct request r = {
        .prompt = p->prompt, .n_prompt = p->n_prompt, .max_tokens = p->n_new, .prefix = p->prefix};
    struct reply once = {0}, timed = {0};
    struct step_cost c = {.name = p->modes.mode[mode].name};
    bench_mode_request(&p->modes, mode, p->a, p->s, plain, p->recording, &r);
    r.ignore_eos = true;
    int rc = session_generate(p->s, &r, &once, e);
    timing_clear(x);
    timing_switch(x, true);
    if (!rc)
        rc = session_generate(p->s, &r, &timed, e);
    timing_switch(x, false);
    // A budget that is learnt from times may split the same tokens otherwise into steps.
    bool same = timed.n == once.n && timed.steps &&
                !memcmp(timed.ids, once.ids, (size_t)once.n * sizeof *once.ids);
    c.steps = timed.steps;
    c.tokens = timed.n - 1;
    c.drafted = timed.drafted;
    c.wall_ms = once.steps ? step_ms(&once) : 0;
    if (!rc && !same)
        rc = err_set(e, ERR_STATE, "two runs of the same request differ; please report this");
    if (!rc) {
        jw_begin(&p->json, '{');
        jw_key_str(&p->json, "mode", c.name);
        jw_key_begin(&p->json, "ops", '[');
        str_printf(&p->text,
                   "\n%s: %lld steps after %lld tokens, %.1f rows and %.2f tokens a step\n"
                   "%-8s %-44s %7s %10s %10s %10s %7s\n",
                   c.name, (long long)c.steps, (long long)p->n_prompt,
                   1 + (double)c.drafted / (double)c.steps, (double)c.tokens / (double)c.steps,
                   "section", "op", "calls", "us", "MB", "floor us", "floor");
        rc = print_ops(p, &c, e);
        jw_end(&p->json, ']');
        put_cost_json(&p->json, &c);
        jw_end(&p->json, '}');
        print_line(p, "all", "a step without timing", 1, c.wall_ms, c.floor_ms * p->copy_rate);
    }
    if (mode == 0)
        *plain = once;
    else
        reply_fini(&once);
    reply_fini(&timed);
    return rc;
}

static int run_profile(struct profile *p, struct err *e) {
    struct reply plain = {0};
    int rc = decode_open(p->a, false, &p->s, e);
    if (!rc)
        rc = make_profile_prompt(p, e);
    if (!rc)
        rc = bench_modes_profile(&p->modes, p->a, e);
    if (rc)
        return rc;
    struct exec *x = model_exec(session_model(p->s));
    p->copy_rate = timing_copy_rate(x);
    str_printf(&p->text,
               "%s, %d threads; a copy moves %.1f GB/s (read and written), the floor of all below; "
               "per step\n",
               exec_ops(x)->name, exec_threads(x), p->copy_rate * 1e-6);
    jw_begin(&p->json, '{');
    jw_key_num(&p->json, "copy_bytes_per_second", p->copy_rate * 1000);
    jw_key_begin(&p->json, "profiles", '[');
    for (int w = 0; w < p->modes.n && !rc && !cli_interrupted(); w++)
        rc = profile_mode(p, w, &plain, e);
    jw_end(&p->json, ']');
    jw_end(&p->json, '}');
    reply_fini(&plain);
    if (rc || cli_interrupted())
        return rc;
    return options_flag(&p->a->opt, OPT_JSON) ? cli_print_json(&p->json, e)
                                              : cli_print(&p->text, e);
}

int cmd_profile(const struct cli_args *a, struct err *e) {
    struct profile p = {.a = a};
    cli_catch_interrupt();
    int rc = run_profile(&p, e);
    sequence_destroy(p.prefix);
    session_close(p.s);
    free(p.prompt);
    free(p.recording);
    str_fini(&p.text);
    str_fini(&p.json.out);
    return rc;
}
