// SPDX-License-Identifier: Apache-2.0
// What `bench --url` saw of each request, and what all of them come to: means and percentiles,
// tokens a second, requests within limits, errors by kind. Times are milliseconds of base/clock.h.
#ifndef COPPICE_CLI_BENCH_URL_STATS_H
#define COPPICE_CLI_BENCH_URL_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json/json.h"
#include "base/str.h"

enum url_outcome {
    URL_DONE,    // the whole answer came
    URL_CONNECT, // no connection
    URL_CLOSED,  // the connection ended before the answer did
    URL_TIMEOUT, // the answer took longer than allowed
    URL_STATUS,  // a status other than 200
    URL_ERROR,   // an error in the stream of events
    URL_FORMAT,  // what came is not HTTP, not JSON or not a stream
};

struct url_result {
    enum url_outcome outcome;
    int status;
    double start; // when it was due
    double first; // the first text; 0: there was none
    double last;  // the last text
    double end;
    double largest_gap;    // between two texts; 0 below two of them
    double server_ms;      // the server's own count until its first token; -1: it does not say
    int64_t events;        // with text
    int64_t input_tokens;  // by the server's count; -1: it does not say
    int64_t cached_tokens; // of them
    int64_t output_tokens; // -1: likewise
    char message[200];     // of an error
};

// A result before anything came.
void url_result_init(struct url_result *r, double start);

// A list of times. Zeroed is valid and empty.
struct url_times {
    double *at; // [n]
    int64_t n, cap;
};
int url_times_add(struct url_times *t, double ms, struct err *e);
void url_times_fini(struct url_times *t);

struct url_summary {
    double mean, p50, p95, p99, max;
};
// Sorts the times. A percentile lies on the line between its two neighbours, as numpy has it; all
// are 0 when there are none.
struct url_summary url_times_sum(struct url_times *t);

// The limits that a good request keeps to, milliseconds; 0: none.
enum url_limit { URL_TTFT, URL_TPOT, URL_GAP, URL_LATENCY, URL_LIMITS };
struct url_limits {
    double ms[URL_LIMITS];
};
// Reads "ttft=200,tpot=50,gap=500,latency=10000", any of them. ERR_USAGE.
int url_limits_read(struct url_limits *l, const char *text, struct err *e);

struct url_run {
    const struct url_result *results; // [n]
    int64_t n;
    struct url_times *gaps; // between texts, of all requests
    struct url_limits limits;
    const char *url, *model;
    int64_t clients; // 0: no bound
    double rate;     // 0: as fast as clients become free
};

enum { URL_ERROR_KINDS = 16 };
struct url_error_kind {
    enum url_outcome outcome;
    int status;
    int64_t count;
    const char *message; // of the first one
};

struct url_report {
    int64_t done, good, input_tokens, cached_tokens, output_tokens, events;
    bool counted; // tokens are the server's count, not events
    bool added_known;
    double seconds;
    struct url_summary first, between, per_token, gap, latency, added;
    struct url_error_kind errors[URL_ERROR_KINDS]; // the last one takes all further kinds
    int n_errors;
};

// Adds a run up; sorts its gaps. ERR_MEMORY.
int url_report_make(struct url_report *r, const struct url_run *run, struct err *e);
void url_report_text(const struct url_report *r, const struct url_run *run, struct str *out);
void url_report_json(const struct url_report *r, const struct url_run *run, struct json_writer *w);
// "HTTP 429", "timeout" and so on.
void url_error_name(const struct url_error_kind *k, char *out, size_t size);

#endif
