// SPDX-License-Identifier: Apache-2.0
// What a reply is held to, as one constraint of it (spec/constraint/constraint.h): calls of tools
// that cannot be malformed, the format that the request gives the reply, and the end of reasoning.
// Text workers.
#ifndef COPPICE_SERVE_COMPLETION_CONSTRAINT_H
#define COPPICE_SERVE_COMPLETION_CONSTRAINT_H

#include "serve/completion/completion.h"

// A service keeps the newest constraints of tools, whose masks are computed already when the next
// turn of a conversation comes with the same tools.
struct tool_constraints;

// t and chat are borrowed; model_vocab: token ids of the model. ERR_MEMORY.
int tool_constraints_create(struct tool_constraints **out, const struct tokenizer *t,
                            const struct chat_template *chat, int64_t model_vocab, struct err *e);
void tool_constraints_destroy(struct tool_constraints *k); // after the engine; NULL is allowed

// Sets c->constraint and c->tools.constrained by c's tools and their schemas in c->said, where
// there are tools and nothing else constrains the reply: after a family's mark of a call a reply is
// held to the names and schemas of the tools, and where a call is required, from the first byte of
// the answer on. What no grammar can hold is left to the model, unless a call is required or a tool
// is strict. False with c->error filled.
bool constrain_tools(struct completion *c);

// Sets c->constraint where the request says what the reply must be, after the prompts are made. A
// block of reasoning before it stays free. False with c->error filled: the text of the field is
// refused, by its name.
bool constrain_format(struct completion *c);

// Max tokens of reasoning for a reply of at most `max_reply` tokens; -1: no limit. The least of
// what the request says and what leaves a quarter of the reply, at most THINKING_REPLY tokens, for
// the answer; of that an eighth for low and minimal efforts, half of it for medium ones, all for
// others.
enum { THINKING_REPLY = 4096 };
int64_t thinking_tokens(const struct params *p, int64_t max_reply);

// Adds the end of reasoning (spec/constraint/thinking_limit.h) to c->constraint where the request
// sets one. Where thinking is off and the prompt ends in an open block all the same, as templates
// without a switch have it, the block is closed at once. False with c->error filled.
bool constrain_thinking(struct completion *c);

#endif
