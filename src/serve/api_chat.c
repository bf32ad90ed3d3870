// SPDX-License-Identifier: Apache-2.0
// Chat completions: messages to one prompt; see api_chat.h.
#include "serve/api_chat.h"

#include <stdlib.h>

#include "serve/messages.h"

static void join_parts(const struct json *content, struct str *out) {
    size_t n;
    const char *s = json_str(content, &n);
    if (s)
        str_append(out, s, n);
    for (size_t i = 0; i < json_len(content) && !s; i++) {
        const struct json *text = json_get(json_at(content, i), "text");
        s = json_str(text, &n);
        if (s)
            str_append(out, s, n);
        s = NULL;
    }
}

static int add_message(const struct service *s, const struct json *m, struct token_list *out,
                       struct err *e) {
    struct str text = {0};
    join_parts(json_get(m, "content"), &text);
    int rc = chatml_message(s->chat, json_str(json_get(m, "role"), NULL),
                            text.data ? text.data : "", text.len, out, e);
    str_fini(&text);
    return rc;
}

bool api_chat_prompt(const struct service *s, const struct params *p, struct token_list *out,
                     struct api_error *x) {
    struct err e = {0};
    int rc = 0;
    if (!messages_check(p->messages, x))
        return false;
    if (!s->chat) {
        api_fail(x, 400, "no_chat_template", "%s", s->chat_error.text);
        return false;
    }
    for (size_t i = 0; i < json_len(p->messages) && !rc; i++)
        rc = add_message(s, json_at(p->messages, i), out, &e);
    if (!rc && !p->no_generation_prompt)
        rc = chatml_open(s->chat, "assistant", out, &e);
    if (rc)
        api_error_of(x, &e);
    return rc == 0;
}

static bool prepare(struct completion *c) {
    c->prompts = calloc(1, sizeof *c->prompts);
    if (!c->prompts) {
        api_fail(&c->error, 503, NULL, "no memory for the prompt");
        return false;
    }
    c->n_prompts = 1;
    c->family = c->s->family;
    return api_chat_prompt(c->s, &c->p, &c->prompts->tokens, &c->error);
}

const struct dialect api_chat_dialect = {
    .endpoint = ENDPOINT_CHAT,
    .path = "/v1/chat/completions",
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .prepare = prepare,
    .chunk = answer_delta,
    .whole = answer_message,
    .roles = true,
};
