// SPDX-License-Identifier: Apache-2.0
// Anthropic's interface; see messages.h.
#include "serve/api/messages.h"

#include "serve/conversation/messages.h"
#include "serve/conversation/prompt.h"
#include "serve/reply/messages.h"

// *schemas: what the conversation borrows from besides the body. Models of this interface think
// when they are told to.
static bool read(struct params *p, const struct json *body, struct conversation *v,
                 struct json **schemas, struct api_error *x) {
    if (p->thinking < 0)
        p->thinking = 0;
    if (!messages_body_check(body, x))
        return false;
    conversation_read_messages(v, body);
    conversation_read_messages_tools(v, body);
    return conversation_know_tools(v, schemas, x);
}

bool api_messages_render(const struct service *s, const struct params *p, const struct json *body,
                         struct chat_text *out, struct api_error *x) {
    struct params plain = *p; // borrows what p owns
    struct conversation v = {0};
    struct json *schemas = NULL;
    struct chat_words words = {0};
    bool ok = read(&plain, body, &v, &schemas, x) &&
              chat_prompt_take(&plain, &v, "messages", &words, NULL, x) &&
              chat_prompt_render(s, &plain, out, x);
    conversation_fini(&v);
    json_free(schemas);
    chat_words_fini(&words);
    return ok;
}

static bool prepare(struct completion *c) {
    struct conversation v = {0};
    struct json *schemas = NULL;
    bool ok = read(&c->p, c->body, &v, &schemas, &c->error) && chat_prompt_make(c, &v, "messages");
    conversation_fini(&v);
    json_free(schemas);
    return ok;
}

const struct dialect api_messages_dialect = {
    .endpoint = ENDPOINT_ANTHROPIC,
    .path = "/v1/messages",
    .id_prefix = "msg_",
    .prepare = prepare,
    .shorten = chat_prompt_shorten,
    .start = blocks_start,
    .item_begin = blocks_item_begin,
    .item_delta = blocks_item_delta,
    .item_end = blocks_item_end,
    .end = blocks_end,
    .error = blocks_error,
    .alive = blocks_alive,
    .whole = blocks_whole,
};
