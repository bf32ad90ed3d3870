// SPDX-License-Identifier: Apache-2.0
// See raw.h. Members of answers that are not named here go on as they are.
#include "serve/relay/raw.h"

#include <string.h>

enum { LINE_MAX_BYTES = 64 << 20 };

static const struct json_rules rules = {.depth = 256, .big_integers = true};

static bool is_one(const char *key, const char *const *list) {
    for (; *list; list++)
        if (!strcmp(key, *list))
            return true;
    return false;
}

bool relay_raw_fits(const struct json *body) {
    static const char *const chat_only[] = {"logprobs",   "top_logprobs", "response_format",
                                            "modalities", "audio",        "prediction"};
    for (size_t i = 0; i < sizeof chat_only / sizeof *chat_only; i++)
        if (json_kind_of(json_get(body, chat_only[i])) != JSON_NULL)
            return false;
    if (json_bool(json_get(body, "continue_final_message"), false) ||
        !json_bool(json_get(body, "add_generation_prompt"), true))
        return false;
    const struct json *messages = json_get(body, "messages");
    const char *role = json_str(json_get(json_at(messages, json_len(messages) - 1), "role"), NULL);
    return json_kind_of(messages) == JSON_ARRAY && role && strcmp(role, "assistant") != 0;
}

struct body {
    struct json_writer w;
    const char *model;
    bool named;
};

static int copy_member(void *arg, const char *key, size_t n, const struct json *v) {
    static const char *const dropped[] = {"messages",
                                          "tools",
                                          "tool_choice",
                                          "functions",
                                          "function_call",
                                          "parallel_tool_calls",
                                          "documents",
                                          "chat_template_kwargs",
                                          "reasoning_effort",
                                          "add_generation_prompt",
                                          "continue_final_message",
                                          NULL};
    struct body *b = arg;
    (void)n;
    if (is_one(key, dropped))
        return 0;
    if (b->model && !strcmp(key, "model")) {
        jw_key_str(&b->w, "model", b->model);
        b->named = true;
        return 0;
    }
    jw_key(&b->w, strcmp(key, "max_completion_tokens") ? key : "max_tokens");
    jw_value(&b->w, v);
    return 0;
}

static int write_body(struct body *b, const struct json *body, const struct str *prompt,
                      struct err *e) {
    jw_begin(&b->w, '{');
    json_each(body, copy_member, b);
    if (b->model && !b->named)
        jw_key_str(&b->w, "model", b->model);
    jw_key(&b->w, "prompt");
    jw_str(&b->w, prompt->data ? prompt->data : "", prompt->len);
    jw_end(&b->w, '}');
    return b->w.out.failed ? err_set(e, ERR_MEMORY, "no memory for the request's body") : 0;
}

int relay_raw_body(const struct chat_template *t, const struct json *body,
                   const struct json *messages, const char *model, struct str *out, struct err *e) {
    const struct chat_input in = {.messages = messages,
                                  .documents = json_get(body, "documents"),
                                  .kwargs = json_get(body, "chat_template_kwargs"),
                                  .add_generation_prompt = true};
    struct chat_text x = {0};
    struct body b = {.model = model};
    int rc = chat_render(t, &in, &x, e);
    if (!rc)
        rc = write_body(&b, body, &x.text, e);
    chat_text_fini(&x);
    if (rc)
        str_fini(&b.w.out);
    else
        *out = b.w.out;
    return rc;
}

// How a chunk, or a whole answer, is written anew.
struct answer {
    struct json_writer w;
    bool chunk;
    bool *spoke;
};

static int copy_choice(void *arg, const char *key, size_t n, const struct json *v) {
    struct answer *a = arg;
    size_t len = 0;
    const char *text = json_str(v, &len);
    (void)n;
    if (strcmp(key, "text") != 0) {
        jw_key(&a->w, key);
        jw_value(&a->w, v);
        return 0;
    }
    jw_key(&a->w, a->chunk ? "delta" : "message");
    jw_begin(&a->w, '{');
    if (!a->chunk || !*a->spoke)
        jw_key_str(&a->w, "role", "assistant");
    if (a->spoke)
        *a->spoke = true;
    jw_key(&a->w, "content");
    jw_str(&a->w, text ? text : "", len);
    jw_end(&a->w, '}');
    return 0;
}

static int copy_top(void *arg, const char *key, size_t n, const struct json *v) {
    struct answer *a = arg;
    (void)n;
    jw_key(&a->w, key);
    if (!strcmp(key, "object")) {
        jw_cstr(&a->w, a->chunk ? "chat.completion.chunk" : "chat.completion");
    } else if (!strcmp(key, "choices")) {
        jw_begin(&a->w, '[');
        for (size_t i = 0; i < json_len(v); i++) {
            jw_begin(&a->w, '{');
            json_each(json_at(v, i), copy_choice, a);
            jw_end(&a->w, '}');
        }
        jw_end(&a->w, ']');
    } else {
        jw_value(&a->w, v);
    }
    return 0;
}

// A completion's object as a chat's; out stays empty where it is none.
static bool convert(const char *text, size_t n, bool *spoke, struct str *out) {
    struct answer a = {.chunk = spoke != NULL, .spoke = spoke};
    struct json *v = NULL;
    if (json_parse_with(&v, text, n, &rules, NULL) ||
        json_kind_of(json_get(v, "choices")) != JSON_ARRAY) {
        json_free(v);
        return true;
    }
    jw_begin(&a.w, '{');
    json_each(v, copy_top, &a);
    jw_end(&a.w, '}');
    json_free(v);
    bool ok = !a.w.out.failed;
    if (ok)
        str_append(out, a.w.out.data, a.w.out.len);
    str_fini(&a.w.out);
    return ok && !out->failed;
}

bool relay_raw_answer(const char *text, size_t n, struct str *out) {
    return convert(text, n, NULL, out);
}

// A line with its end.
static bool take_line(struct relay_raw_stream *s, struct str *out) {
    static const char data[] = "data:";
    size_t n = s->line.len, before = out->len, skip = sizeof data - 1;
    const char *line = s->line.data;
    if (n > skip && !memcmp(line, data, skip)) {
        str_puts(out, "data: ");
        size_t head = out->len;
        if (!convert(line + skip, n - skip, &s->spoke, out))
            return false;
        if (out->len > head)
            str_putc(out, '\n');
        else
            out->len = before;
    }
    if (out->len == before)
        str_append(out, line, n);
    str_clear(&s->line);
    return !out->failed;
}

bool relay_raw_push(struct relay_raw_stream *s, const char *bytes, size_t n, struct str *out) {
    while (n) {
        const char *end = memchr(bytes, '\n', n);
        size_t part = end ? (size_t)(end - bytes) + 1 : n;
        str_append(&s->line, bytes, part);
        if (s->line.failed || s->line.len > LINE_MAX_BYTES || (end && !take_line(s, out)))
            return false;
        bytes += part;
        n -= part;
    }
    return true;
}

void relay_raw_fini(struct relay_raw_stream *s) {
    str_fini(&s->line);
}
