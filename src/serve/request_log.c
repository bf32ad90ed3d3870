// SPDX-License-Identifier: Apache-2.0
// One line for each request; see request_log.h.
#include "serve/request_log.h"

#include <time.h>

static void put_time(struct str *out) {
    struct timespec now;
    struct tm tm;
    char text[32] = "";
    clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &tm))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    str_printf(out, "%s.%03dZ", text, (int)(now.tv_nsec / 1000000));
}

static void json_line(struct str *out, const struct request_record *r) {
    struct json_writer w = {0};
    struct str when = {0};
    put_time(&when);
    jw_begin(&w, '{');
    jw_key_str(&w, "time", when.data ? when.data : "");
    jw_key_str(&w, "id", r->id);
    jw_key_str(&w, "path", r->path);
    jw_key_str(&w, "peer", r->peer);
    jw_key_int(&w, "status", r->status);
    jw_key_num(&w, "total_ms", r->total_ms);
    if (r->end) {
        jw_key_str(&w, "end", r->end);
        answer_usage(&w, &r->totals);
        answer_timings(&w, &r->totals);
    }
    if (!r->end && r->totals.compression.tried) { // else it is in the timings
        jw_key(&w, "compression");
        prefill_report_write(&w, &r->totals.compression);
    }
    if (r->cache)
        jw_key_str(&w, "cache", r->cache);
    if (r->error) {
        jw_key_str(&w, "error", r->error);
    }
    if (r->prompt) {
        jw_key(&w, "prompt");
        jw_str(&w, r->prompt, r->prompt_len);
    }
    jw_end(&w, '}');
    if (w.out.data)
        str_append(out, w.out.data, w.out.len);
    out->failed |= w.out.failed;
    str_fini(&w.out);
    str_fini(&when);
}

static void plain_line(struct str *out, const struct request_record *r) {
    const struct answer_totals *t = &r->totals;
    put_time(out);
    str_printf(out, " %s %s %s %d", r->peer, r->path, r->id, r->status);
    if (r->end)
        str_printf(out,
                   " queue %.1f ms, prompt %lld tokens (%lld cached) in %.1f ms, %lld new tokens, "
                   "accept length %.2f, %.1f tok/s, end %s",
                   t->queue_ms, (long long)t->prompt, (long long)t->cached, t->prompt_ms,
                   (long long)t->tokens, answer_accept_length(t), answer_speed(t), r->end);
    const struct prefill_report *p = &t->compression;
    if (p->tried && p->reason)
        str_printf(out, ", not compressed: %s", p->reason);
    else if (p->tried)
        str_printf(out, ", compressed from %lld to %lld tokens in %.1f ms", (long long)p->from,
                   (long long)p->to, p->ms);
    if (r->cache)
        str_printf(out, ", %s", r->cache);
    str_printf(out, ", %.1f ms", r->total_ms);
    if (r->error)
        str_printf(out, ": %s", r->error);
    if (r->prompt) { // quoted as JSON, so that it stays one line
        struct json_writer w = {0};
        jw_str(&w, r->prompt, r->prompt_len);
        str_puts(out, " prompt ");
        str_puts(out, w.out.data ? w.out.data : "");
        str_fini(&w.out);
    }
}

void request_log_line(struct str *out, const struct request_record *r, bool json) {
    if (json)
        json_line(out, r);
    else
        plain_line(out, r);
    str_putc(out, '\n');
}
