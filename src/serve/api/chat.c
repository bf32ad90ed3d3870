// SPDX-License-Identifier: Apache-2.0
// Chat completions: messages to one prompt; see chat.h.
#include "serve/api/chat.h"

#include "serve/conversation/chat.h"
#include "serve/conversation/check.h"
#include "serve/conversation/prompt.h"
#include "serve/reply/chunks.h"

static bool read(const struct params *p, struct conversation *v, struct api_error *x) {
    if (!messages_check(p->messages, x))
        return false;
    conversation_read_chat(v, p->messages);
    conversation_read_chat_tools(v, p->tools, p->tool_choice, p->parallel);
    if (p->functions)
        conversation_read_chat_functions(v, p->functions, p->function_call);
    return true;
}

// prompt: NULL where only the text is wanted.
static bool render(const struct service *s, const struct params *p, struct chat_text *out,
                   struct completion_prompt *prompt, struct api_error *x) {
    struct params plain = *p; // borrows what p owns
    struct conversation v = {0};
    struct chat_words words = {0};
    bool ok = read(p, &v, x) && chat_prompt_take(&plain, &v, "messages", &words, NULL, x) &&
              (prompt ? chat_prompt_encode(s, &plain, out, prompt, x)
                      : chat_prompt_render(s, &plain, out, x));
    conversation_fini(&v);
    chat_words_fini(&words);
    return ok;
}

bool api_chat_render(const struct service *s, const struct params *p, struct chat_text *out,
                     struct api_error *x) {
    return render(s, p, out, NULL, x);
}

bool api_chat_encode(const struct service *s, const struct params *p, struct completion_prompt *out,
                     struct api_error *x) {
    struct chat_text text = {0};
    bool ok = render(s, p, &text, out, x);
    chat_text_fini(&text);
    return ok;
}

static bool prepare(struct completion *c) {
    struct conversation v = {0};
    bool ok = read(&c->p, &v, &c->error) && chat_prompt_make(c, &v, "messages");
    conversation_fini(&v);
    return ok;
}

static const struct chunk_form form = {
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .chunk = answer_delta,
    .whole = answer_message,
    .roles = true,
};

const struct dialect api_chat_dialect = {
    .endpoint = ENDPOINT_CHAT,
    .path = "/v1/chat/completions",
    .id_prefix = "chatcmpl-",
    .prepare = prepare,
    .shorten = chat_prompt_shorten,
    .start = chunks_start,
    .item_begin = chunks_begin,
    .item_delta = chunks_delta,
    .finish = chunks_finish,
    .end = chunks_end,
    .error = chunks_error,
    .alive = chunks_alive,
    .whole = chunks_whole,
    .form = &form,
};
