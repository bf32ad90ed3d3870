// SPDX-License-Identifier: Apache-2.0
// The prompt of a conversation, the same way for all interfaces that have one: what a template can
// say of it (plain.h), rendered, and encoded. Text workers.
#ifndef COPPICE_SERVE_CONVERSATION_PROMPT_H
#define COPPICE_SERVE_CONVERSATION_PROMPT_H

#include "serve/completion/completion.h"
#include "serve/conversation/plain.h"

// Points p's messages and tools at those of a conversation, which out then owns; v is not needed
// any more. where: as in conversation_plain. tools: what the reply may call; NULL: nobody asks, and
// they and the choice of them are checked all the same. False with x filled.
bool chat_prompt_take(struct params *p, const struct conversation *v, const char *where,
                      struct chat_words *out, struct request_tools *tools, struct api_error *x);
// Renders p's messages and tools. False with x filled; chat_text_fini in any case.
bool chat_prompt_render(const struct service *s, const struct params *p, struct chat_text *out,
                        struct api_error *x);
// The same, and its tokens with the places where others may part from them.
bool chat_prompt_encode(const struct service *s, const struct params *p, struct chat_text *text,
                        struct completion_prompt *out, struct api_error *x);

// Bounds the work on a prompt, of a conversation or not, that has no tokens yet: its client may go,
// and what is far beyond the context is not tokenised to its end.
void chat_prompt_bound(const struct completion *c, struct completion_prompt *prompt);

// c's one prompt, of a conversation. False with c->error filled.
bool chat_prompt_make(struct completion *c, const struct conversation *v, const char *where);
// The same again of what compression leaves of it: `shorten` of struct dialect.
bool chat_prompt_shorten(struct completion *c);

#endif
