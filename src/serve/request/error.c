// SPDX-License-Identifier: Apache-2.0
// Refusals in the forms that clients read; see error.h.
#include "serve/request/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void set_text(struct api_error *x, const char *fmt, va_list args) {
    char text[sizeof x->text];
    struct err clean;
    vsnprintf(text, sizeof text, fmt, args);
    err_set(&clean, 0, "%s", text); // control characters and broken UTF-8 are made harmless
    snprintf(x->text, sizeof x->text, "%s", clean.text);
}

bool api_refuse(struct api_error *x, const char *param, const char *fmt, ...) {
    va_list args;
    *x = (struct api_error){.status = 400, .repeats = true};
    snprintf(x->param, sizeof x->param, "%s", param ? param : "");
    va_start(args, fmt);
    set_text(x, fmt, args);
    va_end(args);
    return false;
}

bool api_refuse_kind(struct api_error *x, const char *param, const char *member,
                     const struct json *v, const char *wanted) {
    return api_refuse(x, param, "%s%s is %s and must be %s", param, member,
                      v ? json_kind_name(v) : "missing", wanted);
}

bool api_may_be(struct api_error *x, const char *param, const struct json *v, enum json_kind kind,
                const char *wanted) {
    return !v || json_kind_of(v) == kind || api_refuse_kind(x, param, "", v, wanted);
}

void api_fail(struct api_error *x, int status, const char *code, const char *fmt, ...) {
    va_list args;
    *x = (struct api_error){.status = status, .code = code};
    x->repeats = status < 500 && status != 429 && status != 408;
    va_start(args, fmt);
    set_text(x, fmt, args);
    va_end(args);
}

bool api_no_memory(struct api_error *x) {
    api_fail(x, 503, NULL, "no memory to read the request");
    return false;
}

bool api_refuse_full(struct api_error *x, const struct err *e) {
    api_fail(x, 429, "queue_full", "%s", e->text);
    x->retry_after = 1;
    return false;
}

void api_error_of(struct api_error *x, const struct err *e) {
    switch (e->code) {
    case ERR_USAGE:
    case ERR_FORMAT:
    case ERR_MISMATCH:
    case ERR_LIMIT:
    case ERR_UNSUPPORTED:
        api_fail(x, 400, NULL, "%s", e->text);
        break;
    case ERR_MEMORY:
    case ERR_STATE:
        api_fail(x, 503, NULL, "%s", e->text);
        x->retry_after = 1;
        break;
    case ERR_CANCELLED: // the client may wait all the same: there is too much
                        // such work (serve/completion/completion.h, yield_check)
        api_fail(x, 429, "queue_full", "too much that takes long waits already; try again later");
        x->retry_after = 1;
        break;
    default:
        api_fail(x, 500, NULL, "%s", e->text);
    }
}

enum api_error_format api_error_format_of(const char *path) {
    static const char messages[] = "/v1/messages";
    return strncmp(path, messages, sizeof messages - 1) == 0 ? API_ANTHROPIC : API_OPENAI;
}

int api_error_status(const struct api_error *x, enum api_error_format format) {
    bool full = x->code && !strcmp(x->code, "queue_full");
    return format == API_ANTHROPIC && full ? 529 : x->status;
}

static const char *anthropic_type(int status) {
    switch (status) {
    case 413:
        return "request_too_large";
    case 504:
        return "timeout_error";
    case 503:
    case 529:
        return "overloaded_error";
    default:
        return "api_error";
    }
}

const char *api_error_type(int status, enum api_error_format format) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    default:
        if (format == API_ANTHROPIC && (status == 413 || status >= 500))
            return anthropic_type(status);
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

static void write_openai(struct json_writer *w, const struct api_error *x) {
    jw_begin(w, '{');
    jw_key_begin(w, "error", '{');
    jw_key_str(w, "message", x->text);
    jw_key_str(w, "type", api_error_type(x->status, API_OPENAI));
    jw_key_str(w, "param", x->param[0] ? x->param : NULL);
    jw_key_str(w, "code", x->code);
    if (x->n_ctx > 0) {
        jw_key_int(w, "n_prompt_tokens", x->n_prompt);
        jw_key_int(w, "n_ctx", x->n_ctx);
    }
    jw_end(w, '}');
    jw_end(w, '}');
}

// Clients look for these very words: for the two numbers when a prompt is too long, and to tell
// that a conversation must be wound back when its calls and results do not fit.
static void write_anthropic_text(struct json_writer *w, const struct api_error *x) {
    char text[256];
    if (x->n_ctx > 0)
        snprintf(text, sizeof text, "prompt is too long: %lld tokens > %lld maximum",
                 (long long)x->n_prompt, (long long)x->n_ctx);
    else if (x->lost_call[0])
        snprintf(text, sizeof text,
                 "%s: unexpected `tool_use_id` found in `tool_result` blocks: %s; send its "
                 "`tool_use`, too, or leave the result out",
                 x->param, x->lost_call);
    jw_cstr(w, x->n_ctx > 0 || x->lost_call[0] ? text : x->text);
}

static void write_anthropic(struct json_writer *w, const struct api_error *x, const char *id) {
    jw_begin(w, '{');
    jw_key_str(w, "type", "error");
    jw_key_begin(w, "error", '{');
    jw_key_str(w, "type", api_error_type(api_error_status(x, API_ANTHROPIC), API_ANTHROPIC));
    jw_key(w, "message");
    write_anthropic_text(w, x);
    if (x->details) { // clients act on it
        jw_key_begin(w, "details", '{');
        jw_key_str(w, "error_code", x->details);
        jw_end(w, '}');
    }
    jw_end(w, '}');
    jw_key_str(w, "request_id", id);
    jw_end(w, '}');
}

void api_error_write(struct json_writer *w, const struct api_error *x, enum api_error_format format,
                     const char *id) {
    if (format == API_ANTHROPIC)
        write_anthropic(w, x, id);
    else
        write_openai(w, x);
}
