// SPDX-License-Identifier: Apache-2.0
// How long a reply may think. A request says it in tokens or by a word for the effort; behind that
// the text that ends reasoning is forced (spec/constraint/thinking_limit.h), so that room for an
// answer is left.
#ifndef COPPICE_SERVE_COMPLETION_THINKING_H
#define COPPICE_SERVE_COMPLETION_THINKING_H

#include "serve/completion/completion.h"

// Most tokens of reasoning for a reply of at most `room` tokens; -1: no end to it. The least of
// what the request asks for and what leaves a quarter of the room, at most THINKING_REPLY tokens,
// for the answer; of that an eighth for low and minimal efforts, half of it for medium ones, all
// for others.
enum { THINKING_REPLY = 4096 };
int64_t thinking_tokens(const struct params *p, int64_t room);

// Adds the end of reasoning to c->constraint where one is wanted. Where thinking is off and the
// prompt ends in an open block all the same, as templates without a switch have it, the block is
// closed at once. False with c->error filled.
bool thinking_constrain(struct completion *c);

#endif
