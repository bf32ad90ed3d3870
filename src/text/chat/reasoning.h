// SPDX-License-Identifier: Apache-2.0
// Parts the text of a reply into reasoning and content while it comes. A family of models marks its
// reasoning by a pair of tags, or (gpt-oss) by messages on channels; which family, the text of the
// chat template tells. Bytes may be cut anywhere: characters come out whole, and only what may
// still become a mark is held back. It does not look at tool calls: they are content here.
#ifndef COPPICE_TEXT_CHAT_REASONING_H
#define COPPICE_TEXT_CHAT_REASONING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/utf8_stream.h"

enum reasoning_family {
    REASONING_NONE,     // everything is content
    REASONING_THINK,    // <think> ... </think>
    REASONING_SEED,     // <seed:think> ... </seed:think>
    REASONING_BRACKETS, // [THINK] ... [/THINK]
    REASONING_COHERE,   // <|START_THINKING|> ... <|END_THINKING|>
    REASONING_APERTUS,  // <|inner_prefix|> ... <|inner_suffix|>
    REASONING_SOLAR,    // <|think|> ... <|end|>, then <|begin|>assistant<|content|>
    REASONING_CHANNEL,  // <|channel>thought ... <channel|>
    REASONING_HARMONY,  // <|channel|>analysis<|message|> ... <|end|>, then other channels
    REASONING_FAMILIES,
};

// The family that the text of a chat template speaks of.
enum reasoning_family reasoning_of_template(const char *text, size_t n);
const char *reasoning_name(enum reasoning_family f); // "none", "think", ...
// The mark that begins a block of reasoning, and the one that ends it; NULL: it has none.
const char *reasoning_opening(enum reasoning_family f);
const char *reasoning_closing(enum reasoning_family f);
// Whether a block may begin after words, too; otherwise only at the beginning of a reply.
bool reasoning_anywhere(enum reasoning_family f);

// One reply. A zeroed one is of REASONING_NONE.
struct reasoning {
    enum reasoning_family family;
    int state;
    bool closed;    // a block was closed in this reply
    bool said[2];   // something came out: reasoning, content
    bool to_reason; // HARMONY: the open message is reasoning
    // HARMONY: a message to a tool goes to the content with its header and its end, between the
    // bytes FF and FE (text/tools/calls.h reads it). Set after reasoning_init; else it is content.
    bool frames;
    bool framed; // the open message is such a one
    bool cut; // set before reasoning_end: the reply was cut off, so that a piece of a mark at its
              // end is no text
    struct utf8_stream utf8;
    struct str held; // undecided text
};

// inside: the prompt ended in an open block (struct chat_text of text/chat/chat.h says so).
void reasoning_init(struct reasoning *r, enum reasoning_family f, bool inside);

// Appends what these bytes of the reply decide. All of the reply's text is pushed, with the
// family's marks visible: reasoning_decode gives it. Memory that is short shows in `failed` of
// both.
void reasoning_push(struct reasoning *r, const char *bytes, size_t n, struct str *reasoning,
                    struct str *content);
// The end of the reply: appends what was held back.
void reasoning_end(struct reasoning *r, struct str *reasoning, struct str *content);
void reasoning_fini(struct reasoning *r);

// Appends the text of a token to what is to be pushed: control tokens only where they are marks of
// the family.
void reasoning_decode(enum reasoning_family f, const struct tokenizer *t, int32_t id,
                      struct str *out);

#endif
