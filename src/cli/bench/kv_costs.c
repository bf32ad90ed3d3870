// SPDX-License-Identifier: Apache-2.0
// Pairs of codecs and what they cost; see kv_costs.h.
#include "cli/bench/kv_costs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/models/decode.h"
#include "ops/exec.h"
#include "ops/kv/codec.h"

enum { NAME = 16, PAIRS = KV_CODEC_COUNT * KV_CODEC_COUNT };

// Adds a pair unless it is there, so that there is room for it.
static void add_pair(struct kv_costs *r, enum kv_codec_id k, enum kv_codec_id v) {
    for (int i = 0; i < r->n; i++)
        if (r->row[i].k == k && r->row[i].v == v)
            return;
    struct kv_cost *row = &r->row[r->n++];
    *row = (struct kv_cost){.k = k, .v = v};
    snprintf(row->name, sizeof row->name, "%s/%s", kv_codec_of(k)->name, kv_codec_of(v)->name);
}

// One codec of n bytes.
static int read_codec(const char *s, size_t n, enum kv_codec_id *out, struct err *e) {
    char name[NAME];
    snprintf(name, sizeof name, "%.*s", (int)(n < NAME ? n : NAME - 1), s);
    return kv_codec_by_name(name, "each codec of --pairs, for keys and values or as keys/values,",
                            out, e);
}

// "K/V", or one codec for both, of n bytes.
static int read_pair(struct kv_costs *r, const char *s, size_t n, struct err *e) {
    const char *slash = memchr(s, '/', n);
    size_t first = slash ? (size_t)(slash - s) : n;
    enum kv_codec_id k, v;
    int rc = read_codec(s, first, &k, e);
    v = k;
    if (!rc && slash)
        rc = read_codec(slash + 1, n - first - 1, &v, e);
    if (!rc)
        add_pair(r, k, v);
    return rc;
}

int kv_costs_read(struct kv_costs *r, const struct cli_args *a, struct err *e) {
    size_t lengths;
    r->length = options_list(&a->opt, OPT_PROMPT_TOKENS, &lengths);
    if (lengths > KV_LENGTHS)
        return err_set(e, ERR_USAGE, "--prompt-tokens names more than %d lengths", KV_LENGTHS);
    r->n_lengths = (int)lengths;
    r->row = calloc(PAIRS, sizeof *r->row);
    if (!r->row)
        return err_set(e, ERR_MEMORY, "no memory for %d pairs", PAIRS);
    add_pair(r, KV_F16, KV_F16);
    int rc = 0;
    const char *s = options_str(&a->opt, OPT_PAIRS);
    for (size_t n; !rc; s += n + 1) {
        n = strcspn(s, ",");
        rc = read_pair(r, s, n, e);
        if (!s[n])
            break;
    }
    return rc;
}

void kv_costs_fini(struct kv_costs *r) {
    free(r->row);
    *r = (struct kv_costs){0};
}

void kv_costs_device(struct kv_costs *r, const struct session *s) {
    struct exec *x = model_exec(session_model(s));
    r->threads = exec_threads(x);
    snprintf(r->device, sizeof r->device, "%s", exec_label(x));
    snprintf(r->level, sizeof r->level, "%s", exec_ops(x)->name);
}

static double bits_of(const struct kv_cost *c) {
    enum { VALUES = 32 };
    return (double)(kv_codec_bytes(c->k, VALUES) + kv_codec_bytes(c->v, VALUES)) * 8 / VALUES / 2;
}

// Perplexity over that of f16.
static double growth(const struct kv_costs *r, const struct kv_cost *c) {
    return exp(c->nll - r->row[0].nll);
}

static double accept_length(const struct kv_cost *c) {
    return c->steps ? (double)c->committed / (double)c->steps : 0;
}

static double accept_rate(const struct kv_cost *c) {
    return c->drafted ? (double)(c->committed - c->steps) / (double)c->drafted : 0;
}

void kv_costs_progress(const struct kv_costs *r, int pair) {
    const struct kv_cost *c = &r->row[pair];
    if (c->lacking.code)
        fprintf(stderr, "%d of %d pairs: %s cannot be measured\n", pair + 1, r->n, c->name);
    else
        fprintf(stderr, "%d of %d pairs: %s, KL %.6f, perplexity %.4f\n", pair + 1, r->n, c->name,
                c->kl, exp(c->nll));
}

static int columns_of(const struct kv_costs *r) {
    return 6 + 2 * (r->row->drafted > 0) + (r->row->sought > 0) + r->n_lengths;
}

static void put_head(const struct kv_costs *r, struct str *out) {
    const struct kv_cost *c = r->row;
    str_puts(out, "| keys/values |  bits | KL to f16             | perplexity | over f16's | same "
                  "top |");
    if (c->drafted)
        str_puts(out, "     AL | accepted |");
    if (c->sought)
        str_puts(out, " needles |");
    for (int i = 0; i < r->n_lengths; i++)
        str_printf(out, " ms after %7d |", (int)r->length[i]);
    str_puts(out, "\n|");
    for (int i = 0; i < columns_of(r); i++)
        str_puts(out, "---|");
    str_putc(out, '\n');
}

static void put_row(const struct kv_costs *r, const struct kv_cost *c, struct str *out) {
    char found[32];
    str_printf(out, "| %-11s | %5.2f |", c->name, bits_of(c));
    for (int i = 2; c->lacking.code && i < columns_of(r); i++)
        str_puts(out, " |");
    if (c->lacking.code) {
        str_putc(out, '\n');
        return;
    }
    str_printf(out, " %.6f ± %.6f   | %10.4f | %10.4f | %6.2f %% |", c->kl, c->kl_error,
               exp(c->nll), growth(r, c), 100 * c->same_top);
    if (r->row[0].drafted)
        str_printf(out, " %6.3f | %6.2f %% |", accept_length(c), 100 * accept_rate(c));
    snprintf(found, sizeof found, "%lld/%lld", (long long)c->found, (long long)c->sought);
    if (c->sought)
        str_printf(out, " %7s |", found);
    for (int i = 0; i < r->n_lengths; i++)
        str_printf(out, " %16.3f |", c->step_ms[i]);
    str_putc(out, '\n');
}

// Of a pool that replies see.
static void put_recall(const struct kv_cost *c, struct str *out) {
    const struct model_recall *y = &c->recall;
    const double n = (double)y->n;
    if (!y->n)
        return;
    str_printf(out, "%s: the pool holds %.1f %% of the attention of the queries that chose it",
               c->name, 100 * y->chosen / n);
    if (y->n_last)
        str_printf(out, ", %.1f %% of that of the last ones that see it",
                   100 * y->last / (double)y->n_last);
    str_printf(out, "; the newest pages would hold %.1f %% (%lld choices)\n", 100 * y->newest / n,
               (long long)y->n);
}

static void put_notes(const struct kv_costs *r, struct str *out) {
    const struct kv_cost *f16 = r->row;
    str_printf(out,
               "\n%lld tokens scored in %lld windows of %lld; bits a value, keys and values alike; "
               "same top: the likeliest token is that of f16; %s, %d threads, %s\n",
               (long long)r->scored, (long long)r->windows, (long long)r->window, r->device,
               r->threads, r->level);
    if (f16->drafted)
        str_printf(out,
                   "AL: tokens of a pass with a tree of %d guesses; accepted: of the guesses\n",
                   r->budget);
    if (f16->sought)
        str_printf(out, "needles: facts found in texts of up to %lld tokens%s\n",
                   (long long)f16->case_tokens,
                   r->plain_text ? ", asked without a chat template, which the file does not have"
                                 : "");
    if (r->n_lengths)
        str_puts(out, "ms: the shortest step of plain decoding after that many tokens\n");
    for (int i = 0; i < r->n; i++)
        put_recall(&r->row[i], out);
    for (int i = 0; i < r->n; i++)
        if (r->row[i].lacking.code)
            str_printf(out, "%s: %s\n", r->row[i].name, r->row[i].lacking.text);
}

static void json_recall(const struct model_recall *y, struct json_writer *w) {
    jw_key_begin(w, "recall", '{');
    jw_key_int(w, "choices", y->n);
    jw_key_num(w, "chosen", y->chosen / (double)y->n);
    if (y->n_last)
        jw_key_num(w, "last", y->last / (double)y->n_last);
    jw_key_num(w, "newest", y->newest / (double)y->n);
    jw_end(w, '}');
}

static void json_row(const struct kv_costs *r, const struct kv_cost *c, struct json_writer *w) {
    jw_begin(w, '{');
    jw_key_str(w, "k", kv_codec_of(c->k)->name);
    jw_key_str(w, "v", kv_codec_of(c->v)->name);
    jw_key_num(w, "bits", bits_of(c));
    if (c->lacking.code)
        jw_key_str(w, "error", c->lacking.text);
    else {
        jw_key_num(w, "perplexity", exp(c->nll));
        jw_key_num(w, "perplexity_error", exp(c->nll) * c->nll_error);
        jw_key_num(w, "over_f16", growth(r, c));
        jw_key_begin(w, "kl", '{');
        jw_key_num(w, "mean", c->kl);
        jw_key_num(w, "error", c->kl_error);
        jw_key_num(w, "p99", c->kl_99);
        jw_key_num(w, "max", c->kl_max);
        jw_end(w, '}');
        jw_key_num(w, "same_top", c->same_top);
    }
    if (c->steps) {
        jw_key_int(w, "steps", c->steps);
        jw_key_int(w, "drafted", c->drafted);
        jw_key_num(w, "accept_length", accept_length(c));
        jw_key_num(w, "accept_rate", accept_rate(c));
        jw_key_bool(w, "equal", c->different == 0);
    }
    if (c->sought) {
        jw_key_int(w, "needles_found", c->found);
        jw_key_int(w, "needles", c->sought);
    }
    if (c->recall.n)
        json_recall(&c->recall, w);
    if (r->n_lengths && !c->lacking.code) {
        jw_key_begin(w, "step_ms", '[');
        for (int i = 0; i < r->n_lengths; i++)
            jw_num(w, c->step_ms[i]);
        jw_end(w, ']');
    }
    jw_end(w, '}');
}

static int print_json(const struct kv_costs *r, const struct cli_args *a, struct err *e) {
    struct json_writer w = {0};
    jw_begin(&w, '{');
    jw_key_str(&w, "model", options_str(&a->opt, OPT_MODEL));
    jw_key_str(&w, "device", r->device);
    jw_key_str(&w, "cpu_level", r->level);
    jw_key_int(&w, "threads", r->threads);
    jw_key_int(&w, "tokens", r->scored);
    jw_key_int(&w, "windows", r->windows);
    jw_key_int(&w, "window", r->window);
    jw_key_int(&w, "budget", r->budget);
    jw_key_int(&w, "needle_tokens", r->row[0].case_tokens);
    jw_key_begin(&w, "step_tokens", '[');
    for (int i = 0; i < r->n_lengths; i++)
        jw_int(&w, r->length[i]);
    jw_end(&w, ']');
    jw_key_begin(&w, "pairs", '[');
    for (int i = 0; i < r->n; i++)
        json_row(r, &r->row[i], &w);
    jw_end(&w, ']');
    jw_end(&w, '}');
    return cli_print_json(&w, e);
}

void kv_costs_text(const struct kv_costs *r, struct str *out) {
    put_head(r, out);
    for (int i = 0; i < r->n; i++)
        put_row(r, &r->row[i], out);
    put_notes(r, out);
}

int kv_costs_print(const struct kv_costs *r, const struct cli_args *a, struct err *e) {
    int64_t different = 0;
    struct str text = {0};
    kv_costs_text(r, &text);
    int rc = options_flag(&a->opt, OPT_JSON) ? print_json(r, a, e) : cli_print(&text, e);
    str_fini(&text);
    for (int i = 0; i < r->n; i++)
        different += r->row[i].different;
    if (!rc && different)
        rc = err_set(e, ERR_STATE, "%lld runs differ from plain decoding; please report this",
                     (long long)different);
    return rc;
}
