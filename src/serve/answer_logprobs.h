// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of tokens as the two OpenAI interfaces write them.
#ifndef COPPICE_SERVE_ANSWER_LOGPROBS_H
#define COPPICE_SERVE_ANSWER_LOGPROBS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "engine/logprobs.h"
#include "text/tokenizer.h"

// Those of neighbouring tokens of a reply or of a prompt.
struct answer_logprobs {
    const struct tokenizer *t;
    const int32_t *ids; // [n]
    int64_t n;
    const struct logprobs *at;
    int64_t from;   // index in `at` of ids[0]; -1: nothing is known of it, ids[1] is 0
    int top;        // likeliest ones shown beside each
    int64_t offset; // characters of text before the first token (completions)
};

// [{"token", "logprob", "bytes", "top_logprobs"}, ...]
void answer_logprobs_list(struct json_writer *w, const struct answer_logprobs *l);
// {"content": [..]}
void answer_logprobs_chat(struct json_writer *w, const struct answer_logprobs *l);
// {"tokens": [..], "token_logprobs": [..], "top_logprobs": [..], "text_offset": [..]}
// of n spans, one behind the other.
void answer_logprobs_text(struct json_writer *w, const struct answer_logprobs *l, int n);

// Characters (code points) that begin in the text of the tokens.
int64_t answer_logprobs_chars(const struct answer_logprobs *l);

#endif
