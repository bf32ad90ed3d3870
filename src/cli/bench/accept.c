// SPDX-License-Identifier: Apache-2.0
// Acceptance by depth and by context; see accept.h.
#include "cli/bench/accept.h"

#include <stdio.h>

static const struct span {
    const char *name;
    int64_t from, to; // tokens of context, `to` not included; 0: no end
} spans[ACCEPT_SPANS] = {{"<1K", 0, 1 << 10},
                         {"1-4K", 1 << 10, 1 << 12},
                         {"4-16K", 1 << 12, 1 << 14},
                         {"16-64K", 1 << 14, 1 << 16},
                         {">64K", 1 << 16, 0}};

static int span_of(int64_t context) {
    int i = 0;
    while (spans[i].to && context >= spans[i].to)
        i++;
    return i;
}

void bench_accept_add(struct bench_accept *a, int64_t n_prompt, const int32_t *lengths,
                      int64_t steps) {
    int64_t context = n_prompt; // committed before the pass
    for (int64_t i = 0; i < steps; i++) {
        int span = span_of(context);
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

static double share(const struct bench_accept *a, int depth) {
    return (double)a->reached[depth] / (double)a->steps;
}

static double length(const struct bench_accept *a, int span) {
    return (double)a->span_rows[span] / (double)a->span_steps[span];
}

void bench_accept_text(const struct bench_accept *a, struct str *out) {
    for (int d = 0; d < TREE_MAX_DEPTH && a->reached[d]; d++) {
        char number[16];
        snprintf(number, sizeof number, "%.2f", share(a, d));
        str_printf(out, "%s%s", d ? " " : "", number + (number[0] == '0')); // .82, 1.00
    }
    const char *before = "; AL in ";
    for (int i = 0; i < ACCEPT_SPANS; i++) {
        if (!a->span_steps[i])
            continue;
        str_printf(out, "%s%s %.2f", before, spans[i].name, length(a, i));
        before = ", ";
    }
}

void bench_accept_json(const struct bench_accept *a, struct json_writer *w) {
    jw_key(w, "accepted_by_depth");
    jw_begin(w, '[');
    for (int d = 0; d < TREE_MAX_DEPTH && a->reached[d]; d++)
        jw_num(w, share(a, d));
    jw_end(w, ']');
    jw_key(w, "accept_length_by_context");
    jw_begin(w, '[');
    for (int i = 0; i < ACCEPT_SPANS; i++) {
        if (!a->span_steps[i])
            continue;
        jw_begin(w, '{');
        jw_key_int(w, "from", spans[i].from);
        jw_key(w, "to");
        if (spans[i].to)
            jw_int(w, spans[i].to);
        else
            jw_null(w);
        jw_key_int(w, "steps", a->span_steps[i]);
        jw_key_num(w, "accept_length", length(a, i));
        jw_end(w, '}');
    }
    jw_end(w, ']');
}
