// SPDX-License-Identifier: Apache-2.0
// A request for text on its way to the engine: whether its prompts fit, a reader of the reply for
// each choice, and the streams of all of them.
#ifndef COPPICE_SERVE_COMPLETION_SUBMIT_H
#define COPPICE_SERVE_COMPLETION_SUBMIT_H

#include "serve/completion/completion.h"

// Whether the context holds each prompt; false with c->error filled. Text worker.
bool completion_fits(struct completion *c);

// Makes c->choices, of each prompt as many as `n` asks for; false with c->error filled. Text
// worker.
bool completion_choices(struct completion *c);

// The reader of a choice's reply from its first token on. ERR_MEMORY.
int completion_text(struct choice *k, struct reply_text *out, struct err *e);

// Hands all choices to the engine; false with c->error filled. Those that it has taken by then are
// released with the request. Loop thread.
bool completion_submit(struct completion *c, stream_notify_fn *notify);

#endif
