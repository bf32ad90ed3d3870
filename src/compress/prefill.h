// SPDX-License-Identifier: Apache-2.0
// When prompts are compressed, for everything that takes conversations: the mode, the threshold,
// what is left alone, the keep ratio of a session, messages as OpenAI's requests spell them, and
// what a request is told.
#ifndef COPPICE_COMPRESS_PREFILL_H
#define COPPICE_COMPRESS_PREFILL_H

#include <stddef.h>
#include <stdint.h>

#include "base/json/json.h"
#include "base/memory/arena.h"
#include "compress/compress.h"
#include "text/chat/conversation.h"

enum { ADAPT_SESSIONS = 1024 };

struct adapt_session {
    uint64_t id;
    double keep;     // ratio
    double accepted; // running mean of shares; below 0: none yet
    uint64_t used;
};

// Zeroed is valid and has no session.
struct adapt {
    struct adapt_session sessions[ADAPT_SESSIONS];
    int n;
    uint64_t clock;
};

// The id of a session's name, never 0.
uint64_t adapt_id(const char *name, size_t n);
// The ratio of a session; 0.10 of one that is new.
double adapt_keep(struct adapt *a, uint64_t session);
// The share of an answer that was guessed, from its accept length: of `tokens` after the first,
// committed in `passes` that verified guesses. Below 0: there were none.
double adapt_share(int64_t tokens, int64_t passes);
// Returns the share of an answer of the session that was guessed, 0 to 1 (others count as the
// nearest). The mean takes 0.3 of it, the first share whole. Below a mean of 0.75 the ratio
// rises, above 0.85 it falls, by 0.005, beyond 0.70 and 0.90 by 0.01, within 0.025 to 0.20. Of more
// than ADAPT_SESSIONS the one that was not used for longest is forgotten.
void adapt_note(struct adapt *a, uint64_t session, double accepted);

// Conversations as OpenAI's requests spell them: an array of messages with a role and a content
// that is a text, an array of parts, or absent. Texts are read for compression and replaced by what
// stays of them; everything else goes through as it is.

// Zeroed is valid; texts are borrowed from the JSON.
struct json_messages {
    struct compress_conversation v;
    const struct json *from;
    struct arena arena;
};

// ERR_FORMAT with the number of the message: no array of objects, a role that is no text, a content
// of another kind, a part of type "text" without a text. Call json_messages_fini in any case.
int json_messages_read(struct json_messages *m, const struct json *messages, struct err *e);
// The array with what stays of the texts; gap: see compress_kept.
void json_messages_write(const struct json_messages *m, const struct compress_result *r,
                         const char *gap, struct json_writer *w);
void json_messages_fini(struct json_messages *m);

enum prefill_mode {
    PREFILL_OFF,
    PREFILL_AUTO,   // prompts of the threshold or more, and those that do not fit otherwise
    PREFILL_ALWAYS, // all
};
const char *prefill_mode_name(enum prefill_mode mode); // as --prefill-compression spells it

struct prefill_options {
    enum prefill_mode mode;
    int64_t threshold; // tokens of the prompt as the target reads it
    struct compress_options compress;
    const char *gap; // stands wherever something was left out; NULL: nothing
    bool adapt;      // the ratio of a session follows its answers (struct adapt)
};
struct prefill_options prefill_options_default(void); // off, threshold 32,000
// Puts the ratio of a session in place of ratio, curve and mass.
void prefill_adapt(struct prefill_options *o, double keep);

// The outcome of one prompt.
struct prefill_report {
    bool tried;         // by the mode it might have been compressed
    int64_t from, to;   // tokens before and after; whose, the caller says
    double ms;          // that it took
    double parked_ms;   // of ms, what making room for the scorer took; 0: there was room
    const char *reason; // a constant: why nothing was left out; NULL: something was
    double adapted;     // the ratio that guesses about earlier answers made of it; 0: none did
};

// Facts of a prompt before it is scored.
struct prefill_prompt {
    int64_t tokens; // of all of it
    int64_t room;   // that the context has for it; 0: not known
    bool tools;     // tools are present
};
// NULL: it is to be compressed; else why not.
const char *prefill_skip(const struct prefill_options *o, const struct prefill_prompt *p);

// Compresses an array of messages of a prompt of that many tokens (by which a curve is looked up);
// -1: they are counted as the scorer does, and a prompt that prefill_skip would leave alone is
// left. *out: the messages with what stays, for the caller to free; NULL where nothing was left
// out. report gets reason, ms and the scorer's counts. Errors as compress_messages.
int prefill_messages(struct compressor *c, const struct prefill_options *o,
                     const struct json *messages, int64_t tokens, struct json **out,
                     struct prefill_report *report, struct err *e);
// The same of a conversation, whose texts are replaced by what stays of them, unless report->reason
// says why nothing was left out.
int prefill_conversation(struct compressor *c, const struct prefill_options *o,
                         struct conversation *v, int64_t tokens, struct prefill_report *report,
                         struct err *e);
// The same of a text, whose end is the question; *out is appended to, also where all stays.
int prefill_text(struct compressor *c, const struct prefill_options *o,
                 const struct compress_part *text, int64_t tokens, struct str *out,
                 struct prefill_report *report, struct err *e);

// {"from":..,"to":..,"ms":..,"reason":..}, reason null where something was left out; with
// "parked_ms":.. where the target's weights made room; with
// "adapted":true,"keep_ratio":.. where the prompt depends on how earlier answers were guessed.
void prefill_report_write(struct json_writer *w, const struct prefill_report *r);

#endif
