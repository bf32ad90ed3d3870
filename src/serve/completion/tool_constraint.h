// SPDX-License-Identifier: Apache-2.0
// Calls of tools that cannot be malformed: behind a family's mark of a call a reply is held to the
// names and schemas of the request's tools, and where a call is asked for, from the first byte of
// the answer on. A service keeps the newest such constraints, whose masks are worked out already
// when the next turn of a conversation comes with the same tools. Text workers.
#ifndef COPPICE_SERVE_COMPLETION_TOOL_CONSTRAINT_H
#define COPPICE_SERVE_COMPLETION_TOOL_CONSTRAINT_H

#include "serve/completion/completion.h"

struct tool_constraints;

// t and chat are borrowed; model_vocab: token ids of the model. ERR_MEMORY.
int tool_constraints_create(struct tool_constraints **out, const struct tokenizer *t,
                            const struct chat_template *chat, int64_t model_vocab, struct err *e);
void tool_constraints_destroy(struct tool_constraints *k); // behind the engine; NULL is allowed

// Sets c->constraint and c->tools.sure by c's tools and the schemas of v, where there are tools and
// nothing else constrains the reply. What no grammar can hold is left to the model, unless a call
// is asked for or a tool is strict. False with c->error filled.
bool tool_constrain(struct completion *c, const struct conversation *v);

#endif
