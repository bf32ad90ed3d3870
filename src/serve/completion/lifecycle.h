// SPDX-License-Identifier: Apache-2.0
// One request for generated text, from its body to the last byte of its answer. A text worker reads
// the body and makes the prompts; the loop thread hands them to the engine, turns what the engine
// publishes into chunks or keeps it for one answer, and ends the engine's work when the client has
// disconnected. A slow client costs the text that lies in its connection's bounded buffer; the rest
// stays with the engine as token ids.
#ifndef COPPICE_SERVE_COMPLETION_LIFECYCLE_H
#define COPPICE_SERVE_COMPLETION_LIFECYCLE_H

#include "serve/completion/completion.h"

// Takes a request over; answers at once where it cannot be begun. One that is being answered
// already and comes again (struct resend_mark) gets that answer.
void completion_start(struct service *s, struct exchange *x, const struct dialect *d);
// Sends the trees of a request in progress, or of one that has just ended, to x. False where there
// is no such request, or it is watched already: x is then as it was.
bool completion_watch(struct service *s, struct exchange *x, const char *id);
// From time to time: a stream that waits shows that it is alive.
void completion_tick(struct service *s);
// Frees all, after the workers, the engine and the loop have ended.
void completion_free_all(struct service *s);

#endif
