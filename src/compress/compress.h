// SPDX-License-Identifier: Apache-2.0
// PFlash: shortens long prompts to the pieces that matter for their last question, by the scores of
// a small model. Texts go in and spans of them come out; nothing is rewritten, no message is
// dropped, the last user turn stays whole (docs/pflash.md). It works on the contents of messages,
// before a template is rendered, and does not depend on the target. One compressor is for one
// thread at a time.
#ifndef COPPICE_COMPRESS_COMPRESS_H
#define COPPICE_COMPRESS_COMPRESS_H

#include "base/str.h"
#include "compress/score/score.h"
#include "compress/select/select.h"
#include "text/tokenizer/tokenizer.h"

// The treatment of a conversation that has an answer already.
enum compress_continued {
    COMPRESS_SKIP, // leave it as it is
    // FlowKV: all but the first message and the last two is compressed message by message, once;
    // the same words are used from then on, so that a cache of prefixes stays of use.
    COMPRESS_FLOW,
    COMPRESS_ANEW, // as a first turn: every message is scored for the last user turn
};

struct compress_options {
    struct select_options select;
    int queries; // tokens of the last user turn that score, 1 to 64: its last ones
    // The ratio changes from turn to turn: FlowKV keeps what a message was shortened to at first.
    bool adapted;
    enum compress_continued continued;
};
// Selection's defaults, 64 queries, COMPRESS_SKIP.
struct compress_options compress_options_default(void);
int compress_options_check(const struct compress_options *o, struct err *e); // ERR_USAGE

// A conversation; everything is borrowed. Texts are UTF-8. Contents that are no text have no part.
struct compress_part {
    const char *text;
    size_t n;
};
struct compress_message {
    const char *role;
    const struct compress_part *parts;
    int64_t n_parts;
};
struct compress_conversation {
    const struct compress_message *messages;
    int64_t n;
};

// A piece that stays.
struct compress_span {
    int64_t message, part;
    size_t begin, end; // bytes of that part's text
};

struct compress_result {
    // In order, apart from each other; every text of at least one byte has one. Also where nothing
    // was left out.
    struct compress_span *spans;
    int64_t n_spans;
    int64_t from, to; // scorer tokens of all texts, and of what stays
    double ms_encode, ms_score, ms_select;
    double ms_turn;     // of ms_score, what begin and end of compress_turns took
    const char *reason; // a constant; why nothing was left out. NULL: something was
};
void compress_result_fini(struct compress_result *r);

// Appends what stays of a part, with `gap` (NULL: nothing) wherever something was left out.
void compress_kept(const struct compress_result *r, const struct compress_conversation *v,
                   int64_t message, int64_t part, const char *gap, struct str *out);

struct compressor;

// Over any scorer, which it owns from now on, also when this fails, and its tokenizer (borrowed).
int compressor_create(struct compressor **out, struct scorer *s, const struct tokenizer *t,
                      struct err *e);
void compressor_close(struct compressor *c); // NULL is allowed

// Callbacks around a scoring, such as making room for it. end follows every begin that
// returned 0; between them and after end the scorer holds nothing of the text.
struct compress_turns {
    int (*begin)(void *arg, struct err *e);
    int (*end)(void *arg, struct err *e);
    void *arg;
};
void compressor_turns(struct compressor *c, const struct compress_turns *t);

// ERR_USAGE: options; ERR_FORMAT: a text that is no UTF-8; ERR_UNSUPPORTED: text that the scorer's
// vocabulary cannot represent; what the scorer says. out is then empty. Prompts of fewer than nine
// tokens, and what consists of a short last turn alone, are left as they are with a reason.
int compress_messages(struct compressor *c, const struct compress_conversation *v,
                      const struct compress_options *o, struct compress_result *out, struct err *e);

// Tokens of the texts, as `from` of a result would count them. Any thread. Errors as above.
int compress_count(const struct compressor *c, const struct compress_conversation *v, int64_t *out,
                   struct err *e);

// A text for a query that is not part of it; query NULL: the end of the text is the query. Spans
// and counts are those of the text, message 0 and part 0.
int compress_text(struct compressor *c, const struct compress_part *text,
                  const struct compress_part *query, const struct compress_options *o,
                  struct compress_result *out, struct err *e);

// A rendered prompt as tokens of the scorer. Control tokens stay, with the names of roles after
// them. Appends the tokens that stay; out: without spans, else as above.
struct compress_ids {
    const int32_t *ids;
    int64_t n;
};
int compress_tokens(struct compressor *c, const struct compress_ids *in,
                    const struct compress_options *o, struct token_list *kept,
                    struct compress_result *out, struct err *e);

// Opens a compressor from a scorer's file.

// path: a GGUF file with a qwen3 model and its tokenizer. x must stay valid as long as the
// compressor; NULL: a CPU backend of its own with all usable CPUs. Errors name the file: those of
// gguf_open, tokenizer_create and score_open.
int compressor_open(struct compressor **out, struct exec *x, const char *path,
                    const struct score_options *o, struct err *e);

#endif
