// SPDX-License-Identifier: Apache-2.0
// One answer of an OpenAI server, from the bytes of its connection to a struct url_result: when its
// texts came, what the usage and the timings say, how it ended. A plain answer is kept whole.
#ifndef COPPICE_CLI_BENCH_URL_REPLY_H
#define COPPICE_CLI_BENCH_URL_REPLY_H

#include "cli/bench/url/http.h"
#include "cli/bench/url/stats.h"

struct url_reply {
    struct url_http http;
    struct url_events events;
    struct str body;           // of an answer that is no stream, at most 1 MiB
    struct url_result *result; // caller's
    struct url_times *gaps;    // caller's; grows by the times between texts
    double now;
    bool streamed; // a stream was asked for, and anything else is an error
    bool finished; // a finish_reason came
    bool ended;    // [DONE] came
};

// A reply for a request that starts now, or was due then.
void url_reply_init(struct url_reply *r, bool streamed, double start, struct url_result *result,
                    struct url_times *gaps);

// Bytes that came at `now`. True when the reply is over: r->result says how.
bool url_reply_push(struct url_reply *r, const char *bytes, size_t n, double now);
// The connection has ended.
void url_reply_close(struct url_reply *r, double now);
// Ends the reply with an error of the client's own.
void url_reply_fail(struct url_reply *r, enum url_outcome outcome, double now, const char *message);
void url_reply_fini(struct url_reply *r);

#endif
