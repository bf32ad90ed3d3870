// SPDX-License-Identifier: Apache-2.0
// Anthropic's interface; see api_messages.h.
#include "serve/api_messages.h"

#include <stdlib.h>

#include "serve/answer_messages.h"
#include "serve/anthropic_read.h"
#include "serve/api_chat.h"
#include "serve/chat_prompt.h"

void messages_chat_fini(struct messages_chat *m) {
    json_free(m->messages);
    json_free(m->tools);
    *m = (struct messages_chat){0};
}

// Models of this interface think when they are told to.
bool messages_chat_read(struct messages_chat *out, struct params *p, const struct json *body,
                        struct api_error *x) {
    if (!anthropic_read_messages(body, &out->messages, x) ||
        !anthropic_read_tools(p->tools, &out->tools, x))
        return false;
    p->messages = out->messages;
    p->tools = out->tools;
    if (p->thinking < 0)
        p->thinking = 0;
    return true;
}

static bool prepare(struct completion *c) {
    struct messages_chat *m = c->own = calloc(1, sizeof *m);
    if (!m) {
        api_fail(&c->error, 503, NULL, "no memory for the conversation");
        return false;
    }
    return messages_chat_read(m, &c->p, c->body, &c->error) && api_chat_prepare(c);
}

static void drop(struct completion *c) {
    if (c->own)
        messages_chat_fini(c->own);
    free(c->own);
}

const struct dialect api_messages_dialect = {
    .endpoint = ENDPOINT_ANTHROPIC,
    .path = "/v1/messages",
    .id_prefix = "msg_",
    .prepare = prepare,
    .shorten = chat_prompt_shorten,
    .drop = drop,
    .start = blocks_start,
    .item_begin = blocks_item_begin,
    .item_delta = blocks_item_delta,
    .item_end = blocks_item_end,
    .end = blocks_end,
    .error = blocks_error,
    .alive = blocks_alive,
    .whole = blocks_whole,
};
