// SPDX-License-Identifier: Apache-2.0
// Counts of requests and the text form of counts; see metrics.h.
#include "serve/metrics.h"

#include <math.h>
#include <stdio.h>

static const double waits[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                               0.5,   1,      2.5,   5,    10,    30,   60,  120};
static const double gaps[] = {0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02,
                              0.03,   0.05,  0.075,  0.1,   0.15,   0.25, 0.5,   1};

void histogram_add(struct histogram *h, double value, uint64_t times) {
    int i = 0;
    while (i < h->bins && value > h->edge[i])
        i++;
    h->count[i] += times;
    h->sum += value * (double)times;
}

void metrics_head(struct str *out, const char *name, const char *type, const char *help) {
    str_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

// Counts are whole numbers and must not lose digits; 17 digits keep any double.
static void put_number(struct str *out, double v) {
    if (fabs(v) < 9007199254740992.0 && v == floor(v))
        str_printf(out, "%.0f\n", v);
    else
        str_printf(out, "%.9g\n", v);
}

void metrics_value(struct str *out, const char *name, const char *labels, double value) {
    if (labels[0])
        str_printf(out, "%s{%s} ", name, labels);
    else
        str_printf(out, "%s ", name);
    put_number(out, value);
}

void metrics_histogram(struct str *out, const char *name, const char *help,
                       const struct histogram *h) {
    uint64_t sum = 0;
    metrics_head(out, name, "histogram", help);
    for (int i = 0; i < h->bins; i++) {
        sum += h->count[i];
        str_printf(out, "%s_bucket{le=\"%.9g\"} %llu\n", name, h->edge[i], (unsigned long long)sum);
    }
    sum += h->count[h->bins];
    str_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)sum);
    str_printf(out, "%s_sum ", name);
    put_number(out, h->sum);
    str_printf(out, "%s_count %llu\n", name, (unsigned long long)sum);
}

void metrics_init(struct metrics *m) {
    const struct histogram wait = {.edge = waits, .bins = sizeof waits / sizeof waits[0]};
    *m = (struct metrics){.queue = wait, .first = wait, .whole = wait, .compression = wait};
    m->between = (struct histogram){.edge = gaps, .bins = sizeof gaps / sizeof gaps[0]};
}

void metrics_add_compression(struct metrics *m, const struct prefill_report *r) {
    if (r->tried && r->reason)
        m->not_compressed++;
    if (!r->tried || r->reason)
        return;
    m->compressed++;
    m->compressed_from += (uint64_t)r->from;
    m->compressed_to += (uint64_t)r->to;
    histogram_add(&m->compression, r->ms / 1e3, 1);
}

void metrics_write_compression(const struct metrics *m, struct str *out) {
    metrics_histogram(out, "coppice_compression_seconds", "Time that compressing a prompt took.",
                      &m->compression);
    metrics_head(out, "coppice_compression_total", "counter",
                 "Prompts that were compressed, or looked at and left alone.");
    metrics_value(out, "coppice_compression_total", "result=\"compressed\"", (double)m->compressed);
    metrics_value(out, "coppice_compression_total", "result=\"left\"", (double)m->not_compressed);
    metrics_head(out, "coppice_compression_tokens_total", "counter",
                 "Tokens of compressed prompts, before and after.");
    metrics_value(out, "coppice_compression_tokens_total", "at=\"from\"",
                  (double)m->compressed_from);
    metrics_value(out, "coppice_compression_tokens_total", "at=\"to\"", (double)m->compressed_to);
}

void metrics_write_build(struct str *out, const char *labels) {
    if (!labels)
        return;
    metrics_head(out, "coppice_build_info", "gauge", "What this program was built from.");
    metrics_value(out, "coppice_build_info", labels, 1);
}

void metrics_write(const struct metrics *m, struct str *out) {
    static const char *const ends[] = {"stop", "length", "cancelled", "error", "refused"};
    char label[32];
    metrics_histogram(out, "coppice_queue_seconds", "Time that requests waited for a slot.",
                      &m->queue);
    metrics_histogram(out, "coppice_first_token_seconds",
                      "Time from the arrival of a request to its first token.", &m->first);
    metrics_histogram(out, "coppice_between_tokens_seconds",
                      "Time between tokens of one answer; tokens that came together share it.",
                      &m->between);
    metrics_histogram(out, "coppice_request_seconds",
                      "Time from the arrival of a request to the end of its answer.", &m->whole);
    metrics_head(out, "coppice_requests_total", "counter",
                 "Requests for text that have ended, by how.");
    for (int i = 0; i < METRICS_ENDS; i++) {
        snprintf(label, sizeof label, "end=\"%s\"", ends[i]);
        metrics_value(out, "coppice_requests_total", label, (double)m->ends[i]);
    }
    metrics_write_compression(m, out);
}
