// SPDX-License-Identifier: Apache-2.0
// How far prompts of a session are compressed, where that follows its answers (compress/adapt.h):
// the state is of the thread that compresses, and answers tell it by jobs.
#ifndef COPPICE_SERVE_COMPLETION_SESSION_RATIO_H
#define COPPICE_SERVE_COMPLETION_SESSION_RATIO_H

#include "serve/reply/json.h"
#include "serve/service.h"

// The thread that compresses: the server's options, with the session's ratio where they follow
// sessions and the request names one (0: none).
struct prefill_options session_ratio_options(struct service *s, uint64_t session);
// Loop thread: what an answer of the session took. Answers without guesses say nothing, and neither
// do those that come while the other thread has too much to do.
void session_ratio_tell(struct service *s, uint64_t session, const struct answer_totals *t);

#endif
