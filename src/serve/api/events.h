// SPDX-License-Identifier: Apache-2.0
// The events of the Responses interface: of an answer that is made, and again of one that is kept.
#ifndef COPPICE_SERVE_API_EVENTS_H
#define COPPICE_SERVE_API_EVENTS_H

#include "base/json/json.h"
#include "base/str.h"

// Where events go. A failed allocation shows in out->failed.
struct response_events {
    struct json_writer *w; // empty between events
    struct str *out;
    int64_t next, after; // number of the next event; those up to `after` are left out, -1: none
    // Writes the list of log-probabilities of the item that is given without them; NULL: it is
    // given with its own. A document of them would be some ten times as large as their text.
    void (*put_logprobs)(void *arg, struct json_writer *w);
    void *logprobs_arg;
};

// Between these the event's members are written.
struct json_writer *response_event_open(struct response_events *r, const char *type);
void response_event_close(struct response_events *r, const char *type);

// Events of an item, which is given as it is at its end, or at its beginning with an empty text.
enum { ITEM_BEGINS = 1, ITEM_SAYS_ALL = 2, ITEM_ENDS = 4 };
void response_events_item(struct response_events *r, const struct json *item, int64_t at, int what);

// All events that a stream of a kept response would have had, each text in one piece.
void response_events_all(struct response_events *r, const struct json *response);

#endif
