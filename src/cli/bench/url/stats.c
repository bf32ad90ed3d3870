// SPDX-License-Identifier: Apache-2.0
// Sums over the requests of `bench --url`; see stats.h.
#include "cli/bench/url/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

void url_result_init(struct url_result *r, double start) {
    *r = (struct url_result){
        .start = start, .server_ms = -1, .input_tokens = -1, .output_tokens = -1};
}

int url_times_add(struct url_times *t, double ms, struct err *e) {
    int rc = vec_reserve(&t->at, &t->cap, t->n + 1, sizeof *t->at, e);
    if (!rc)
        t->at[t->n++] = ms;
    return rc;
}

void url_times_fini(struct url_times *t) {
    free(t->at);
    *t = (struct url_times){0};
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const struct url_times *t, double share) {
    double place = share * (double)(t->n - 1), below = floor(place);
    int64_t i = (int64_t)below;
    return i + 1 < t->n ? t->at[i] + (place - below) * (t->at[i + 1] - t->at[i]) : t->at[i];
}

struct url_summary url_times_sum(struct url_times *t) {
    double sum = 0;
    if (!t->n)
        return (struct url_summary){0};
    qsort(t->at, (size_t)t->n, sizeof *t->at, by_value);
    for (int64_t i = 0; i < t->n; i++)
        sum += t->at[i];
    return (struct url_summary){.mean = sum / (double)t->n,
                                .p50 = percentile(t, 0.5),
                                .p95 = percentile(t, 0.95),
                                .p99 = percentile(t, 0.99),
                                .max = t->at[t->n - 1]};
}

static const char *const limit_names[URL_LIMITS] = {"ttft", "tpot", "gap", "latency"};

int url_limits_read(struct url_limits *l, const char *text, struct err *e) {
    *l = (struct url_limits){0};
    for (const char *at = text; *at;) {
        size_t word = strcspn(at, "="), i = 0;
        while (i < URL_LIMITS &&
               (strlen(limit_names[i]) != word || memcmp(limit_names[i], at, word)))
            i++;
        char *end = NULL;
        double ms = at[word] == '=' ? strtod(at + word + 1, &end) : 0;
        if (i == URL_LIMITS || !(ms > 0) || isinf(ms) || (*end && *end != ','))
            return err_set(e, ERR_USAGE,
                           "--goodput does not know '%s'; give limits in milliseconds as in "
                           "ttft=200,tpot=50,gap=500,latency=10000",
                           at);
        l->ms[i] = ms;
        at = *end ? end + 1 : end;
    }
    return 0;
}

// Milliseconds a token after the first one; -1 below two tokens.
static double ms_per_token(const struct url_result *q, bool counted) {
    int64_t n = counted ? q->output_tokens : q->events;
    return n > 1 && q->first > 0 ? (q->last - q->first) / (double)(n - 1) : -1;
}

static bool is_within(double value, double limit) {
    return !(limit > 0) || value <= limit;
}

static bool is_good(const struct url_result *q, const struct url_limits *l, bool counted) {
    return (q->first > 0 || !(l->ms[URL_TTFT] > 0)) &&
           is_within(q->first - q->start, l->ms[URL_TTFT]) &&
           is_within(ms_per_token(q, counted), l->ms[URL_TPOT]) &&
           is_within(q->largest_gap, l->ms[URL_GAP]) &&
           is_within(q->end - q->start, l->ms[URL_LATENCY]);
}

static void add_error(struct url_report *r, const struct url_result *q) {
    int i = 0;
    while (i < r->n_errors &&
           (r->errors[i].outcome != q->outcome || r->errors[i].status != q->status))
        i++;
    if (i == URL_ERROR_KINDS)
        i--;
    if (i == r->n_errors)
        r->errors[r->n_errors++] = (struct url_error_kind){
            .outcome = q->outcome, .status = q->status, .message = q->message};
    r->errors[i].count++;
}

// The lists that become summaries.
struct lists {
    struct url_times first, per_token, gap, latency, added;
};

static int add_times(struct lists *l, const struct url_result *q, bool counted, struct err *e) {
    double token = ms_per_token(q, counted);
    int rc = url_times_add(&l->latency, q->end - q->start, e);
    if (!rc && q->first > 0)
        rc = url_times_add(&l->first, q->first - q->start, e);
    if (!rc && q->first > 0 && q->server_ms >= 0)
        rc = url_times_add(&l->added, q->first - q->start - q->server_ms, e);
    if (!rc && token >= 0)
        rc = url_times_add(&l->per_token, token, e);
    if (!rc && q->events > 1)
        rc = url_times_add(&l->gap, q->largest_gap, e);
    return rc;
}

// Whether the server sent the number of tokens of every answer.
static bool all_counted(const struct url_run *run) {
    for (int64_t i = 0; i < run->n; i++)
        if (run->results[i].outcome == URL_DONE && run->results[i].output_tokens < 0)
            return false;
    return true;
}

static int add_results(struct url_report *r, const struct url_run *run, struct lists *l,
                       struct err *e) {
    double begin = INFINITY, end = 0;
    int rc = 0;
    for (int64_t i = 0; !rc && i < run->n; i++) {
        const struct url_result *q = &run->results[i];
        begin = fmin(begin, q->start);
        end = fmax(end, q->end);
        if (q->outcome != URL_DONE) {
            add_error(r, q);
            continue;
        }
        r->done++;
        r->good += is_good(q, &run->limits, r->counted);
        r->events += q->events;
        r->input_tokens += q->input_tokens > 0 ? q->input_tokens : 0;
        r->cached_tokens += q->cached_tokens;
        r->output_tokens += r->counted ? q->output_tokens : q->events;
        rc = add_times(l, q, r->counted, e);
    }
    r->seconds = run->n ? (end - begin) / 1000 : 0;
    return rc;
}

int url_report_make(struct url_report *r, const struct url_run *run, struct err *e) {
    struct lists l = {0};
    *r = (struct url_report){.counted = all_counted(run)};
    int rc = add_results(r, run, &l, e);
    r->first = url_times_sum(&l.first);
    r->per_token = url_times_sum(&l.per_token);
    r->gap = url_times_sum(&l.gap);
    r->latency = url_times_sum(&l.latency);
    r->added = url_times_sum(&l.added);
    r->added_known = l.added.n > 0;
    r->between = url_times_sum(run->gaps);
    url_times_fini(&l.first);
    url_times_fini(&l.per_token);
    url_times_fini(&l.gap);
    url_times_fini(&l.latency);
    url_times_fini(&l.added);
    return rc;
}

void url_error_name(const struct url_error_kind *k, char *out, size_t size) {
    static const char *const names[] = {[URL_DONE] = "none",
                                        [URL_CONNECT] = "not connected",
                                        [URL_CLOSED] = "cut off",
                                        [URL_TIMEOUT] = "timeout",
                                        [URL_STATUS] = "HTTP",
                                        [URL_ERROR] = "error event",
                                        [URL_FORMAT] = "not understood"};
    if (k->outcome == URL_STATUS)
        snprintf(out, size, "HTTP %d", k->status);
    else
        snprintf(out, size, "%s", names[k->outcome]);
}

static double per_second(const struct url_report *r, int64_t n) {
    return r->seconds > 0 ? (double)n / r->seconds : 0;
}

static void summary_line(struct str *out, const char *name, const struct url_summary *s) {
    str_printf(out, "%-24s %10.1f %10.1f %10.1f %10.1f %10.1f\n", name, s->mean, s->p50, s->p95,
               s->p99, s->max);
}

static void summaries_text(const struct url_report *r, struct str *out) {
    str_printf(out, "%-24s %10s %10s %10s %10s %10s\n", "milliseconds", "mean", "p50", "p95", "p99",
               "max");
    summary_line(out, "first token", &r->first);
    summary_line(out, "between events", &r->between);
    summary_line(out, r->counted ? "a token after the first" : "an event after the first",
                 &r->per_token);
    summary_line(out, "largest gap of a stream", &r->gap);
    summary_line(out, "whole request", &r->latency);
    if (r->added_known)
        summary_line(out, "added to the server's", &r->added);
}

static void limits_text(const struct url_report *r, const struct url_limits *l, struct str *out) {
    str_printf(out, "goodput: %.2f requests a second, %lld of %lld within", per_second(r, r->good),
               (long long)r->good, (long long)r->done);
    for (int i = 0; i < URL_LIMITS; i++)
        if (l->ms[i] > 0)
            str_printf(out, " %s %g ms", limit_names[i], l->ms[i]);
    str_putc(out, '\n');
}

void url_report_text(const struct url_report *r, const struct url_run *run, struct str *out) {
    const struct url_limits *l = &run->limits;
    str_printf(out, "%s, model %s", run->url, run->model);
    if (run->rate > 0)
        str_printf(out, ", %g requests a second at random times", run->rate);
    if (run->clients)
        str_printf(out, ", %s%lld at once", run->rate > 0 ? "at most " : "",
                   (long long)run->clients);
    str_printf(out, "\n%lld requests in %.2f s: %lld done, %lld failed, %.2f a second\n",
               (long long)run->n, r->seconds, (long long)r->done, (long long)(run->n - r->done),
               per_second(r, r->done));
    str_printf(out, "%lld tokens in (%lld of them cached), %lld %s out in %lld events: %.1f %s\n",
               (long long)r->input_tokens, (long long)r->cached_tokens, (long long)r->output_tokens,
               r->counted ? "tokens" : "events", (long long)r->events,
               per_second(r, r->output_tokens),
               r->counted ? "tok/s" : "events/s (the server does not count its tokens)");
    summaries_text(r, out);
    if (l->ms[URL_TTFT] > 0 || l->ms[URL_TPOT] > 0 || l->ms[URL_GAP] > 0 || l->ms[URL_LATENCY] > 0)
        limits_text(r, l, out);
    for (int i = 0; i < r->n_errors; i++) {
        char name[40];
        url_error_name(&r->errors[i], name, sizeof name);
        str_printf(out, "failed: %lld x %s: %s\n", (long long)r->errors[i].count, name,
                   r->errors[i].message);
    }
}

static void summary_json(struct json_writer *w, const char *name, const struct url_summary *s) {
    jw_key_begin(w, name, '{');
    jw_key_num(w, "mean", s->mean);
    jw_key_num(w, "p50", s->p50);
    jw_key_num(w, "p95", s->p95);
    jw_key_num(w, "p99", s->p99);
    jw_key_num(w, "max", s->max);
    jw_end(w, '}');
}

static void limits_json(const struct url_report *r, const struct url_limits *l,
                        struct json_writer *w) {
    jw_key_begin(w, "goodput", '{');
    jw_key_num(w, "ttft_ms", l->ms[URL_TTFT]);
    jw_key_num(w, "tpot_ms", l->ms[URL_TPOT]);
    jw_key_num(w, "gap_ms", l->ms[URL_GAP]);
    jw_key_num(w, "latency_ms", l->ms[URL_LATENCY]);
    jw_key_int(w, "requests", r->good);
    jw_key_num(w, "requests_per_second", per_second(r, r->good));
    jw_end(w, '}');
}

static void errors_json(const struct url_report *r, struct json_writer *w) {
    jw_key_begin(w, "errors", '[');
    for (int i = 0; i < r->n_errors; i++) {
        char name[40];
        url_error_name(&r->errors[i], name, sizeof name);
        jw_begin(w, '{');
        jw_key_str(w, "kind", name);
        jw_key_int(w, "count", r->errors[i].count);
        jw_key_str(w, "message", r->errors[i].message);
        jw_end(w, '}');
    }
    jw_end(w, ']');
}

void url_report_json(const struct url_report *r, const struct url_run *run, struct json_writer *w) {
    jw_begin(w, '{');
    jw_key_str(w, "url", run->url);
    jw_key_str(w, "model", run->model);
    jw_key_int(w, "clients", run->clients);
    jw_key_num(w, "rate", run->rate);
    jw_key_int(w, "requests", run->n);
    jw_key_int(w, "done", r->done);
    jw_key_int(w, "failed", run->n - r->done);
    jw_key_num(w, "seconds", r->seconds);
    jw_key_int(w, "input_tokens", r->input_tokens);
    jw_key_int(w, "cached_tokens", r->cached_tokens);
    jw_key_int(w, "output_tokens", r->output_tokens);
    jw_key_str(w, "tokens_by", r->counted ? "usage" : "events");
    jw_key_int(w, "events", r->events);
    jw_key_num(w, "requests_per_second", per_second(r, r->done));
    jw_key_num(w, "output_tokens_per_second", per_second(r, r->output_tokens));
    summary_json(w, "ttft_ms", &r->first);
    summary_json(w, "between_events_ms", &r->between);
    summary_json(w, "tpot_ms", &r->per_token);
    summary_json(w, "largest_gap_ms", &r->gap);
    summary_json(w, "latency_ms", &r->latency);
    if (r->added_known)
        summary_json(w, "added_ms", &r->added);
    limits_json(r, &run->limits, w);
    errors_json(r, w);
    jw_end(w, '}');
}
