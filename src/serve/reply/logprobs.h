// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of tokens as the two OpenAI interfaces write them.
#ifndef COPPICE_SERVE_REPLY_LOGPROBS_H
#define COPPICE_SERVE_REPLY_LOGPROBS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json/json.h"
#include "engine/batch/request.h"
#include "text/tokenizer/tokenizer.h"

// Those of neighbouring tokens of a reply or of a prompt.
struct answer_logprobs {
    const struct tokenizer *t;
    const int32_t *ids; // [n]
    int64_t n;
    const struct logprobs *at;
    int64_t from;   // index in `at` of ids[0]; -1: nothing is known of it, ids[1] is 0
    int top;        // likeliest ones shown with each
    int64_t offset; // characters of text before the first token (completions)
};

// The text of a token, control tokens by name; t NULL: "".
void answer_token(struct json_writer *w, const struct tokenizer *t, int32_t id);

// [{"token", "logprob", "bytes", "top_logprobs"}, ...]
void answer_logprobs_list(struct json_writer *w, const struct answer_logprobs *l);
// {"content": [..]}
void answer_logprobs_chat(struct json_writer *w, const struct answer_logprobs *l);
// {"tokens": [..], "token_logprobs": [..], "top_logprobs": [..], "text_offset": [..]}
// of n spans, one after the other.
void answer_logprobs_text(struct json_writer *w, const struct answer_logprobs *l, int n);

// Where the words of a reply were found in its tokens. Zeroed: nothing has been.
struct token_match {
    int64_t at;   // tokens whose words are known
    size_t bytes; // of the token after them
    size_t work;  // bytes that were decoded and searched
};
struct match_tokens {
    const struct tokenizer *t; // NULL: tokens have no text
    const int32_t *ids;        // [n]
    int64_t n;
};
// The tokens [range[0], range[1]) that new words, s, came of: they are looked for
// after those of the words before, which may have ended within a token; that one is of the words
// before. What is left out between, marks and blanks, is of neither. False where there are
// none, and always once the search has taken 16 MiB of work for one reply. ERR_MEMORY shows in
// *failed.
bool token_match_find(struct token_match *m, const struct match_tokens *k, const char *s,
                      size_t len, int64_t range[2], bool *failed);

// Characters (code points) that begin in the text of the tokens.
int64_t answer_logprobs_chars(const struct answer_logprobs *l);

#endif
