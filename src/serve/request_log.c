// SPDX-License-Identifier: Apache-2.0
// One line for each request; see request_log.h.
#include "serve/request_log.h"

#include <stdio.h>
#include <string.h>
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

enum { PATH_SHOWN = 256 };

// A word of visible ASCII: what is none of that, and a percent sign, is escaped as in a URL.
static void put_word(struct str *out, const char *text) {
    size_t n = 0;
    for (; text[n] && n < PATH_SHOWN; n++) {
        unsigned char c = (unsigned char)text[n];
        if (c <= ' ' || c >= 0x7F || c == '%')
            str_printf(out, "%%%02X", c);
        else
            str_putc(out, text[n]);
    }
    if (n == 0)
        str_putc(out, '-');
    if (text[n])
        str_puts(out, "...");
}

static void json_word(struct json_writer *w, const char *key, const char *text) {
    struct str word = {0};
    put_word(&word, text);
    jw_key_str(w, key, word.data ? word.data : "");
    str_fini(&word);
}

static void json_line(struct str *out, const struct request_record *r) {
    struct json_writer w = {0};
    struct str when = {0};
    put_time(&when);
    jw_begin(&w, '{');
    jw_key_str(&w, "time", when.data ? when.data : "");
    jw_key_str(&w, "id", r->id);
    json_word(&w, "method", r->method);
    json_word(&w, "path", r->path);
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
    if (r->error)
        jw_key_str(&w, "error", r->error);
    if (r->prompt)
        jw_key_text(&w, "prompt", r->prompt, r->prompt_len);
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
    str_printf(out, " %s ", r->peer);
    put_word(out, r->method);
    str_putc(out, ' ');
    put_word(out, r->path);
    str_printf(out, " %s %d", r->id ? r->id : "-", r->status);
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

void request_log_write(const struct request_log *l, const struct request_record *r) {
    struct str line = {0};
    if (!l->write)
        return;
    request_log_line(&line, r, l->json);
    if (!line.failed)
        l->write(l->arg, line.data, line.len);
    str_fini(&line);
}

void request_log_ended(const struct request_log *l, const struct http_ended *r) {
    const char *error = r->status == 499 && !r->reason ? "the client disconnected" : r->reason;
    request_log_write(l, &(struct request_record){.method = r->method,
                                                  .path = r->path,
                                                  .peer = r->peer,
                                                  .status = r->status,
                                                  .error = error,
                                                  .total_ms = r->ms});
}

const char *request_log_refusal(struct refusal_note *n, const struct api_error *why, bool words) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]";
    if (words || why->status >= 500 || why->status == 429)
        return why->text;
    if (why->n_ctx > 0)
        snprintf(n->text, sizeof n->text, "%lld prompt tokens for a context of %lld",
                 (long long)why->n_prompt, (long long)why->n_ctx);
    else if (why->param[0])
        snprintf(n->text, sizeof n->text, "refused for %.*s", (int)strspn(why->param, plain),
                 why->param);
    else
        snprintf(n->text, sizeof n->text, "refused%s%s", why->code ? ": " : "",
                 why->code ? why->code : "");
    return n->text;
}
