// SPDX-License-Identifier: Apache-2.0
// What a reply is held to, as one constraint of it (spec/constraint/constraint.h): calls of tools
// that cannot be malformed, the format that the request gives the reply, and the end of reasoning.
// Text workers.
#ifndef COPPICE_SERVE_COMPLETION_CONSTRAINT_H
#define COPPICE_SERVE_COMPLETION_CONSTRAINT_H

#include "grammar/tool_grammar.h"
#include "serve/completion/completion.h"

// A service keeps the newest constraints of tools, whose masks are computed already when the next
// turn of a conversation comes with the same tools.
struct tool_constraints;

struct tool_constraints_of {
    const struct tokenizer *t;    // borrowed
    enum tool_family calls;       // how the model writes them
    enum reasoning_family family; // and its reasoning
    int64_t model_vocab;          // token ids of the model
};
// ERR_MEMORY.
int tool_constraints_create(struct tool_constraints **out, const struct tool_constraints_of *o,
                            struct err *e);
void tool_constraints_destroy(struct tool_constraints *k); // after the engine; NULL is allowed

// What a reply with tools is held to.
struct tool_rules {
    struct tool_grammar_tool *tools; // [n]
    int n;
    bool required, several;
    bool none;                 // no calls
    bool inside;               // the prompt ended in an open block of reasoning
    const char *opening;       // of such a block, where one may come first
    const struct json *format; // NULL, or a schema that the reply may follow in place of calls
    bool format_strict;
    const struct cancel_check *cancel;
};
// An object with all of them but `cancel`.
void tool_rules_write(struct json_writer *w, const struct tool_rules *r);
// The constraint that they are, kept or new: one reference for the caller. Errors as
// tool_grammar_create.
int tool_constraint_make(struct tool_constraints *k, const struct tool_rules *w,
                         struct constraint **out, struct err *e);

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

// How the reply of a choice is read, which may end it; it borrows from the request.
struct reply_rules completion_reply_rules(const struct choice *k);

#endif
