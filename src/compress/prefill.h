// SPDX-License-Identifier: Apache-2.0
// When prompts are compressed, for everything that takes conversations: the mode, the threshold,
// what is left alone, and what a request is told of it.
#ifndef COPPICE_COMPRESS_PREFILL_H
#define COPPICE_COMPRESS_PREFILL_H

#include "base/json/json.h"
#include "compress/compress.h"

enum prefill_mode {
    PREFILL_OFF,
    PREFILL_AUTO,   // prompts of the threshold or more, and those that do not fit otherwise
    PREFILL_ALWAYS, // all
};

struct prefill_options {
    enum prefill_mode mode;
    int64_t threshold; // tokens of the prompt as the target reads it
    struct compress_options compress;
    const char *gap; // stands wherever something was left out; NULL: nothing
    bool adapt;      // the ratio of a session follows its answers (adapt.h)
};
struct prefill_options prefill_options_default(void); // off, threshold 32,000
// Puts the ratio of a session in place of ratio, curve and mass.
void prefill_adapt(struct prefill_options *o, double keep);

// What became of one prompt.
struct prefill_report {
    bool tried;         // by the mode it might have been compressed
    int64_t from, to;   // tokens before and after; whose, the caller says
    double ms;          // that it took
    double parked_ms;   // of ms, what making room for the scorer took; 0: there was room
    const char *reason; // a constant: why nothing was left out; NULL: something was
    double adapted;     // the ratio that guesses about earlier answers made of it; 0: none did
};

// What is known of a prompt before it is scored.
struct prefill_prompt {
    int64_t tokens; // of all of it
    int64_t room;   // that the context has for it; 0: not known
    bool tools;     // tools are present
};
// NULL: it is to be compressed; else why not.
const char *prefill_skip(const struct prefill_options *o, const struct prefill_prompt *p);

// Compresses an array of messages of a prompt of so many tokens (by which a curve is looked up);
// -1: they are counted as the scorer does, and a prompt that prefill_skip would leave alone is
// left. *out: the messages with what stays, for the caller to free; NULL where nothing was left
// out. report gets reason, ms and the scorer's counts. Errors as compress_messages.
int prefill_messages(struct compressor *c, const struct prefill_options *o,
                     const struct json *messages, int64_t tokens, struct json **out,
                     struct prefill_report *report, struct err *e);
// The same of a text, whose end is the question; *out is appended to, also where all stays.
int prefill_text(struct compressor *c, const struct prefill_options *o,
                 const struct compress_part *text, int64_t tokens, struct str *out,
                 struct prefill_report *report, struct err *e);

// {"from":..,"to":..,"ms":..,"reason":..}, reason null where something was left out; with
// "parked_ms":.. where the target's weights made room; with
// "adapted":true,"keep_ratio":.. where the prompt depends on how earlier answers were guessed.
void prefill_report_write(struct json_writer *w, const struct prefill_report *r);

#endif
