// SPDX-License-Identifier: Apache-2.0
// Answers: the items that a reply is made of, in its order (reasoning, text, calls of tools), and
// their JSON, whole and in chunks, byte shapes as OpenAI clients read them, with the names that
// llama-server's clients know besides. Plain values in, JSON out: it does not depend on requests,
// threads or connections.
#ifndef COPPICE_SERVE_REPLY_ANSWER_H
#define COPPICE_SERVE_REPLY_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json/json.h"
#include "base/rng.h"
#include "base/str.h"
#include "compress/prefill.h"
#include "engine/batch/request.h"
#include "serve/reply/logprobs.h"
#include "state/view.h"
// A text with its length; NULL: none.
struct answer_text {
    const char *s;
    size_t n;
};

// A call of a tool, or a delta of one.
struct answer_call {
    int index;        // among the calls of the choice
    const char *id;   // NULL: a delta of one that has begun
    const char *name; // where there is an id
    bool custom;      // its text is free, not JSON
    struct answer_text text;
};

struct answer_choice {
    int64_t index;
    bool role;                       // chat: says that the assistant speaks
    struct answer_text reasoning;    // chat
    struct answer_text content;      // chat: content, completions: text
    const struct answer_call *calls; // [n_calls] chat
    int n_calls;
    bool older;                             // the call stands in function_call
    const char *finish;                     // NULL: goes on
    const struct answer_logprobs *logprobs; // [n_logprobs] NULL: none
    int n_logprobs;
};
// Elements of `choices`: of a chunk (delta) and of a whole answer (message) of a chat, and of a
// completion, where both have the same shape.
void answer_delta(struct json_writer *w, const struct answer_choice *c);
void answer_message(struct json_writer *w, const struct answer_choice *c);
void answer_completion(struct json_writer *w, const struct answer_choice *c);

// Sums over all choices of a request.
struct answer_totals {
    int64_t prompt, cached, tokens, reasoning, drafted, accepted, steps;
    int64_t choices; // each one's first token came with its prompt
    // [choices] over the logits that decided, of answers that have ended, where it is requested.
    const uint64_t *hashes;
    double queue_ms, prompt_ms, decode_ms;
    struct prefill_report compression; // of the prompt, in the model's tokens
    // How the request's tools are described, or "none", where the template does not; or NULL.
    const char *tool_format;
    const char *speculate; // how tokens were guessed; NULL: of no request
    struct view_rule view; // of the reply
    struct guess_counts guesses;
    const char *const *drafts; // [PRICE_DRAFTS] what the drafts are called
};
double answer_accept_length(const struct answer_totals *t); // tokens per pass; 0 without passes
double answer_speed(const struct answer_totals *t); // tokens per second while decoding; 0: unknown
// The member "logit_hash" of an open object: 16 hexadecimal digits for each choice; nothing where
// there are none.
void answer_hashes(struct json_writer *w, const struct answer_totals *t);
// "usage": {...} and "timings": {...}
void answer_usage(struct json_writer *w, const struct answer_totals *t);
// What replies see, where that is not everything: members of the object that is open.
void answer_view(struct json_writer *w, const struct view_rule *r);
void answer_timings(struct json_writer *w, const struct answer_totals *t);

// "stop" or "length"
const char *answer_finish(enum end_reason r);

enum answer_item_kind { ITEM_REASONING, ITEM_TEXT, ITEM_CALL };

struct answer_item {
    enum answer_item_kind kind;
    int index; // among the items of its choice
    int call;  // of ITEM_CALL: index among the calls
    bool open;
    bool custom;        // of ITEM_CALL: its text is free, not JSON
    bool broken;        // of ITEM_CALL: the reply ended within it
    char id[RANDOM_ID]; // of ITEM_CALL: what results name it by
    struct str name;    // of ITEM_CALL: the tool's
    // Of words where log-probabilities are requested and items carry them: the tokens that they
    // came of, by their index in the reply.
    int64_t first_token, tokens;
    // Its result: words, or the arguments of a call. Empty unless its interface keeps text.
    struct str text;
};

// The new part of an item.
struct item_text {
    struct answer_text text;                // may be empty where there are log-probabilities
    const struct answer_logprobs *logprobs; // [n_logprobs] NULL: none
    int n_logprobs;
};

// Zeroed is valid.
struct answer_items {
    struct answer_item *at;
    int n, calls;
    int64_t cap;
    bool failed; // memory was short
};
void answer_items_fini(struct answer_items *l);

// The newest item while it is open; NULL: none is.
struct answer_item *answer_items_open(struct answer_items *l);
// Begins an item, with no other open. NULL with l->failed set when memory is short. It stays where
// it is until the next one begins.
struct answer_item *answer_items_begin(struct answer_items *l, enum answer_item_kind kind);

#endif
