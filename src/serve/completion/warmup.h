// SPDX-License-Identifier: Apache-2.0
// Cache warm-up: texts that are run ahead of the requests for them, so that the prefix cache has
// their states: a conversation from a file at the start, and after an answer what the next turn
// will surely begin with where the template leaves its reasoning out, while the engine is idle.
// Nothing is answered. Loop thread, but for the making of tokens (text workers).
#ifndef COPPICE_SERVE_COMPLETION_WARMUP_H
#define COPPICE_SERVE_COMPLETION_WARMUP_H

#include "serve/completion/completion.h"

// Reads a conversation: the body of a chat completion. What is wrong with it is a line in the log.
void warmup_read(struct service *s, const char *body, size_t n);
// Reads what the turn after c will begin with: c has ended without an error, and still has the
// messages of its prompt.
void warmup_next_turn(struct completion *c);
// Whether warmup_next_turn may be of use for c.
bool warmup_applies(const struct completion *c);
// What is being read ahead ends: a request needs the engine.
void warmup_yield(struct service *s);
void warmup_tick(struct service *s);     // from time to time
void warmup_free_all(struct service *s); // after workers and engine

#endif
