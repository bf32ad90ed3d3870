// SPDX-License-Identifier: Apache-2.0
// The table and the JSON of `bench niah`.
#include "cli/bench/niah/report.h"

#include <stdio.h>
#include <stdlib.h>

void niah_sums_add(struct niah_sums *to, const struct niah_sums *one) {
    to->cases += one->cases;
    to->facts += one->facts;
    to->kept += one->kept;
    to->from += one->from;
    to->to += one->to;
    to->asked += one->asked;
    to->sought += one->sought;
    to->found += one->found;
    to->too_long += one->too_long;
    to->prompt_tokens += one->prompt_tokens;
    to->shorten_ms += one->shorten_ms;
    to->first_ms += one->first_ms;
}

int niah_report_open(struct niah_report *r, const struct niah_sweep *sweep,
                     const struct niah_ways *ways, struct err *e) {
    size_t n = niah_sweep_groups(sweep) * ways->n;
    *r = (struct niah_report){.sweep = sweep, .ways = ways};
    r->sums = calloc(n + 1, sizeof *r->sums);
    return r->sums ? 0 : err_set(e, ERR_MEMORY, "no memory for the sums of %zu groups", n);
}

void niah_report_close(struct niah_report *r) {
    free(r->sums);
    str_fini(&r->runs.out);
    *r = (struct niah_report){0};
}

static double mean(double sum, int64_t n) {
    return n ? sum / (double)n : 0;
}

// The members of one case or of sums.
static void json_sums(struct json_writer *w, const struct niah_sums *s) {
    jw_key_int(w, "cases", s->cases);
    jw_key_int(w, "facts", s->facts);
    jw_key_int(w, "kept", s->kept);
    jw_key_int(w, "from", s->from);
    jw_key_int(w, "to", s->to);
    jw_key_num(w, "shorten_ms", mean(s->shorten_ms, s->cases));
    jw_key_int(w, "asked", s->asked);
    jw_key_int(w, "sought", s->sought);
    jw_key_int(w, "found", s->found);
    jw_key_int(w, "too_long", s->too_long);
    jw_key_num(w, "prompt_tokens", mean((double)s->prompt_tokens, s->asked));
    jw_key_num(w, "first_token_ms", mean(s->first_ms, s->asked));
}

void niah_report_add(struct niah_report *r, size_t group, size_t way, const struct niah_spec *s,
                     const struct niah_sums *one, const struct str *answer) {
    struct json_writer *w = &r->runs;
    struct str name = {0};
    niah_sums_add(&r->sums[group * r->ways->n + way], one);
    niah_name(s, &name);
    w->out.failed |= name.failed || (answer && answer->failed);
    jw_begin(w, '{');
    jw_key_str(w, "id", name.data ? name.data : "");
    jw_key_str(w, "way", niah_way_name(r->ways->list[way]));
    json_sums(w, one);
    if (answer) {
        jw_key(w, "answer");
        jw_str(w, answer->data ? answer->data : "", answer->len);
    }
    jw_end(w, '}');
    str_fini(&name);
}

static struct niah_sums over_all(const struct niah_report *r, size_t way) {
    struct niah_sums all = {0};
    for (size_t g = 0; g < niah_sweep_groups(r->sweep); g++)
        niah_sums_add(&all, &r->sums[g * r->ways->n + way]);
    return all;
}

static void json_way(struct json_writer *w, const struct niah_report *r, size_t way,
                     const struct niah_sums *s) {
    jw_begin(w, '{');
    jw_key_str(w, "way", niah_way_name(r->ways->list[way]));
    json_sums(w, s);
    jw_end(w, '}');
}

void niah_report_json(const struct niah_report *r, struct json_writer *w) {
    jw_key(w, "overall");
    jw_begin(w, '[');
    for (size_t k = 0; k < r->ways->n; k++) {
        struct niah_sums all = over_all(r, k);
        json_way(w, r, k, &all);
    }
    jw_end(w, ']');
    jw_key(w, "groups");
    jw_begin(w, '[');
    for (size_t g = 0; g < niah_sweep_groups(r->sweep); g++) {
        struct niah_spec s = niah_sweep_spec(r->sweep, g, 0);
        jw_begin(w, '{');
        jw_key_int(w, "tokens", s.tokens);
        jw_key_int(w, "needles", s.needles);
        jw_key_str(w, "filler", niah_filler_name(s.filler));
        jw_key_str(w, "kind", niah_kind_name(s.kind));
        jw_key(w, "ways");
        jw_begin(w, '[');
        for (size_t k = 0; k < r->ways->n; k++)
            json_way(w, r, k, &r->sums[g * r->ways->n + k]);
        jw_end(w, ']');
        jw_end(w, '}');
    }
    jw_end(w, ']');
    jw_key(w, "runs");
    jw_begin(w, '[');
    if (r->runs.out.len)
        str_append(&w->out, r->runs.out.data, r->runs.out.len);
    w->out.failed |= r->runs.out.failed;
    jw_end(w, ']');
}

static void put_share(struct str *out, int width, int64_t part, int64_t all) {
    if (all)
        str_printf(out, " %*.1f", width, 100 * (double)part / (double)all);
    else
        str_printf(out, " %*s", width, "-");
}

static void put_row(struct str *out, const char *label, const char *way,
                    const struct niah_sums *s) {
    str_printf(out, "%s %-7s %5lld %5lld", label, way, (long long)s->cases, (long long)s->facts);
    put_share(out, 7, s->to, s->from);
    put_share(out, 6, s->kept, s->facts);
    str_printf(out, " %5lld", (long long)s->asked);
    put_share(out, 7, s->found, s->sought);
    str_printf(out, " %8lld", (long long)s->too_long);
    if (s->asked)
        str_printf(out, " %14.1f", mean(s->first_ms, s->asked));
    str_putc(out, '\n');
}

void niah_report_table(const struct niah_report *r, struct str *out) {
    char label[64];
    str_puts(out, " tokens needles filler  kind     way     cases facts tokens%  kept% asked  "
                  "found% too long first token ms\n");
    for (size_t g = 0; g < niah_sweep_groups(r->sweep); g++) {
        struct niah_spec s = niah_sweep_spec(r->sweep, g, 0);
        snprintf(label, sizeof label, "%7lld %7d %-7s %-8s", (long long)s.tokens, s.needles,
                 niah_filler_name(s.filler), niah_kind_name(s.kind));
        for (size_t k = 0; k < r->ways->n; k++)
            put_row(out, label, niah_way_name(r->ways->list[k]), &r->sums[g * r->ways->n + k]);
    }
    for (size_t k = 0; k < r->ways->n; k++) {
        struct niah_sums all = over_all(r, k);
        snprintf(label, sizeof label, "%-32s", "all");
        put_row(out, label, niah_way_name(r->ways->list[k]), &all);
    }
}
