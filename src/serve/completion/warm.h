// SPDX-License-Identifier: Apache-2.0
// Texts that are read before anybody asks for them, so that the prefix cache has their states: a
// conversation from a file at the start, and behind an answer what the next turn will surely begin
// with where the template leaves its reasoning out, while the engine has nothing else to do.
// Nothing is answered. Loop thread, but for the making of tokens (text workers).
#ifndef COPPICE_SERVE_COMPLETION_WARM_H
#define COPPICE_SERVE_COMPLETION_WARM_H

#include "serve/completion/completion.h"

// Reads a conversation: the body of a chat completion. What is wrong with it is a line in the log.
void warm_read(struct service *s, const char *body, size_t n);
// Reads what the next turn behind c will begin with: c has ended well, and still has the messages
// of its prompt.
void warm_ahead(struct completion *c);
// Whether c is one of those for which warm_ahead may be of use.
bool warm_wants(const struct completion *c);
// What is being read ahead ends: somebody wants the engine.
void warm_yield(struct service *s);
void warm_tick(struct service *s);     // from time to time
void warm_free_all(struct service *s); // behind workers and engine

#endif
