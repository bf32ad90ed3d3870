// SPDX-License-Identifier: Apache-2.0
// A kept response as the events that a stream of it would have had, each text in one piece. It
// reads the response's own JSON and knows nothing of how that was made.
#ifndef COPPICE_SERVE_REPLY_REPLAY_H
#define COPPICE_SERVE_REPLY_REPLAY_H

#include "base/json/json.h"
#include "base/str.h"

// Appends the events whose sequence_number is above `after` (-1: all) and gives the number of the
// last one. A failed allocation shows in out->failed.
int64_t response_replay(const struct json *response, int64_t after, struct str *out);

#endif
