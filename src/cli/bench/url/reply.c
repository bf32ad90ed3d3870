// SPDX-License-Identifier: Apache-2.0
// Answers of an OpenAI server; see reply.h. What counts as text is any piece of a choice
// that a user would see: content, reasoning, a call's arguments, the text of a completion.
#include "cli/bench/url/reply.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BODY_MAX = 1 << 20 };

void url_reply_init(struct url_reply *r, bool streamed, double start, struct url_result *result,
                    struct url_times *gaps) {
    *r = (struct url_reply){.result = result, .gaps = gaps, .streamed = streamed};
    url_result_init(result, start);
}

void url_reply_fini(struct url_reply *r) {
    url_http_fini(&r->http);
    url_events_fini(&r->events);
    str_fini(&r->body);
}

void url_reply_fail(struct url_reply *r, enum url_outcome outcome, double now,
                    const char *message) {
    r->result->outcome = outcome;
    r->result->status = r->http.status;
    r->result->end = now;
    snprintf(r->result->message, sizeof r->result->message, "%.199s", message);
}

static bool filled(const struct json *v) {
    size_t n = 0;
    return json_str(v, &n) && n > 0;
}

static bool has_text(const struct json *choice) {
    const struct json *delta = json_get(choice, "delta");
    return filled(json_get(choice, "text")) || filled(json_get(delta, "content")) ||
           filled(json_get(delta, "reasoning_content")) || filled(json_get(delta, "reasoning")) ||
           json_len(json_get(delta, "tool_calls")) > 0;
}

static int note_text(struct url_reply *r, struct err *e) {
    struct url_result *q = r->result;
    if (q->events++ == 0) {
        q->first = q->last = r->now;
        return 0;
    }
    double gap = r->now - q->last;
    q->largest_gap = fmax(q->largest_gap, gap);
    q->last = r->now;
    return url_times_add(r->gaps, gap, e);
}

static void note_usage(struct url_result *q, const struct json *v) {
    const struct json *usage = json_get(v, "usage"), *times = json_get(v, "timings");
    if (json_kind_of(usage) == JSON_OBJECT) {
        q->input_tokens = json_int(json_get(usage, "prompt_tokens"), q->input_tokens);
        q->output_tokens = json_int(json_get(usage, "completion_tokens"), q->output_tokens);
        q->cached_tokens = json_int(
            json_get(json_get(usage, "prompt_tokens_details"), "cached_tokens"), q->cached_tokens);
    }
    if (json_kind_of(times) == JSON_OBJECT) {
        double prompt = json_num(json_get(times, "prompt_ms"), -1);
        double queue = json_num(json_get(times, "queue_ms"), 0);
        if (prompt >= 0)
            q->server_ms = prompt + queue;
    }
}

// The message of {"error": {"message": ...}} or {"error": "..."}, cut to `size`; false when there
// is no error in it.
static bool error_of(const struct json *v, char *out, size_t size) {
    const struct json *error = json_get(v, "error");
    if (json_kind_of(error) == JSON_NULL)
        return false;
    const char *s = json_str(error, NULL);
    if (!s)
        s = json_str(json_get(error, "message"), NULL);
    snprintf(out, size, "%s", s ? s : "without a message");
    return true;
}

// One event. An error in it is told as ERR_STATE.
static int take_event(void *arg, const char *data, size_t n, struct err *e) {
    struct url_reply *r = arg;
    if (r->ended)
        return 0;
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        r->ended = true;
        return 0;
    }
    struct json *v = NULL;
    char message[160];
    int rc = json_parse(&v, data, n, e);
    if (rc)
        return err_prefix(e, "an event");
    if (error_of(v, message, sizeof message))
        rc = err_set(e, ERR_STATE, "%s", message);
    const struct json *choices = json_get(v, "choices");
    bool text = false;
    for (size_t i = 0; i < json_len(choices); i++) {
        const struct json *choice = json_at(choices, i);
        text = text || has_text(choice);
        r->finished = r->finished || filled(json_get(choice, "finish_reason"));
    }
    if (!rc && text)
        rc = note_text(r, e);
    note_usage(r->result, v);
    json_free(v);
    return rc;
}

static int take_body(void *arg, const char *bytes, size_t n, struct err *e) {
    struct url_reply *r = arg;
    if (r->http.status == 200 && r->http.event_stream)
        return url_events_push(&r->events, bytes, n, take_event, r, e);
    if (r->body.len + n > BODY_MAX)
        return err_set(e, ERR_LIMIT, "the answer is over %d bytes", BODY_MAX);
    str_append(&r->body, bytes, n);
    return r->body.failed ? err_set(e, ERR_MEMORY, "no memory for the answer") : 0;
}

// What a body says that is no stream: an error's message, else its beginning.
static void body_message(const struct url_reply *r, char *out, size_t size) {
    struct json *v = NULL;
    const char *text = r->body.data ? r->body.data : "";
    if (json_parse(&v, text, r->body.len, NULL) || !error_of(v, out, size))
        snprintf(out, size, "%.*s", (int)strcspn(text, "\r\n"), text);
    json_free(v);
}

// The whole answer is here.
static void complete(struct url_reply *r) {
    char message[160];
    if (r->http.status != 200) {
        body_message(r, message, sizeof message);
        url_reply_fail(r, URL_STATUS, r->now, message);
    } else if (r->streamed && !r->http.event_stream) {
        url_reply_fail(r, URL_FORMAT, r->now, "the answer is not a stream of events");
    } else if (r->streamed && !r->ended && !r->finished) {
        url_reply_fail(r, URL_CLOSED, r->now,
                       "the stream ended without a finish_reason and without [DONE]");
    } else {
        r->result->outcome = URL_DONE;
        r->result->status = r->http.status;
        r->result->end = r->now;
    }
}

bool url_reply_push(struct url_reply *r, const char *bytes, size_t n, double now) {
    struct err e = {0};
    r->now = now;
    int rc = url_http_push(&r->http, bytes, n, take_body, r, &e);
    if (rc) {
        r->http.close = true;
        url_reply_fail(r, rc == ERR_STATE ? URL_ERROR : URL_FORMAT, now, e.text);
        return true;
    }
    if (r->http.state != URL_HTTP_DONE)
        return false;
    complete(r);
    return true;
}

void url_reply_close(struct url_reply *r, double now) {
    struct err e = {0};
    r->now = now;
    if (url_http_close(&r->http, &e) && !r->ended)
        url_reply_fail(r, URL_CLOSED, now, e.text);
    else
        complete(r);
}
