// SPDX-License-Identifier: Apache-2.0
// What the loop thread counts about requests, and the text form of counts (Prometheus exposition
// format 0.0.4). Counts of the engine are passed in when the text is written.
#ifndef COPPICE_SERVE_METRICS_H
#define COPPICE_SERVE_METRICS_H

#include <stdint.h>

#include "base/str.h"
#include "compress/prefill.h"

enum { METRICS_BINS = 16 };

// Values up to edge[i] count in bin i; those above the last edge in one more.
struct histogram {
    const double *edge; // [bins], ascending
    int bins;
    uint64_t count[METRICS_BINS + 1];
    double sum;
};
void histogram_add(struct histogram *h, double value, uint64_t times);

// The parts of the text form. labels: "" or "a=\"b\"".
void metrics_head(struct str *out, const char *name, const char *type, const char *help);
void metrics_value(struct str *out, const char *name, const char *labels, double value);
void metrics_histogram(struct str *out, const char *name, const char *help,
                       const struct histogram *h);

// How requests that requested text ended.
enum metrics_end {
    METRICS_STOP,
    METRICS_LENGTH,
    METRICS_CANCELLED, // the client disconnected
    METRICS_FAILED,
    METRICS_REFUSED, // not begun: 4xx and 503
    METRICS_ENDS,
};

struct metrics {
    struct histogram queue, first, between, whole; // seconds
    uint64_t ends[METRICS_ENDS];
    uint64_t prompt_tokens, cached_tokens, tokens, drafted, accepted; // of ended requests
    struct histogram compression;                                     // seconds
    uint64_t compressed, not_compressed;     // prompts; those that were looked at and left alone
    uint64_t compressed_from, compressed_to; // tokens of the former
};
void metrics_init(struct metrics *m);
// The outcome of one prompt; nothing where none was looked at.
void metrics_add_compression(struct metrics *m, const struct prefill_report *r);
// The part of metrics_write about compression.
void metrics_write_compression(const struct metrics *m, struct str *out);
// A gauge that is 1 and whose labels say what this build is; nothing where there are no labels.
void metrics_write_build(struct str *out, const char *labels);
// Appends all of it.
void metrics_write(const struct metrics *m, struct str *out);

#endif
