// SPDX-License-Identifier: Apache-2.0
// Prompt compression, a part of the public interface of coppice: which pieces of a long prompt
// matter for its last question, by the scores of a small model. What it is good for, and what it
// loses: docs/pflash.md. Errors, structs and threads are as coppice.h says.
#ifndef COPPICE_COMPRESS_H
#define COPPICE_COMPRESS_H

#include <coppice.h>

#ifdef __cplusplus
extern "C" {
#endif

struct coppice_compressor;

struct coppice_compressor_options {
    size_t size;
    const char *scorer; // a GGUF file with a qwen3 model and its tokenizer
    const char *device; // NULL or "auto", "cpu", "cuda", "cuda:N"
    int threads;        // 0: all CPUs
    int layers;         // how many layers are run, the first ones; 0: all
    int score_layers;   // how many of those to score by, the last ones; 0: all
    int dense;          // full attention in the scorer in place of block-sparse attention
    int64_t memory;     // bytes in which what it computed stays for texts that begin alike; 0: none
};

// 0, or a negative code and a sentence; *out is then NULL.
int coppice_compressor_open(struct coppice_compressor **out,
                            const struct coppice_compressor_options *o, struct coppice_error *e);
void coppice_compressor_close(struct coppice_compressor *c); // NULL is allowed

// How much to keep: `keep` of the tokens, or by `curve`, or what holds `mass` of the scores.
struct coppice_compress_options {
    size_t size;
    double keep;              // in (0, 1]; 0: by curve or mass
    const char *curve;        // ratios by length, "10000:0.5,40000:0.2"; NULL: by keep or mass
    double mass, least, most; // 0: 0.9, of at least 0.02 and at most 0.5 of the tokens
    int no_anchors;           // do not look for the question's own words
    // Of a conversation that has an answer: 0 leaves it as it is, 1 shortens each
    // earlier message by itself, once, and the last two not at all, 2 takes it as a first turn.
    int continued;
};

struct coppice_text {
    const char *role; // "system", "user", ...
    const char *text; // UTF-8
    size_t bytes;
};

// A piece that stays: bytes begin to end of a message's text.
struct coppice_span {
    int64_t message;
    size_t begin, end;
};

struct coppice_compression {
    size_t size;
    // In order; every text of at least one byte has one. Kept until the next call with this
    // compressor.
    const struct coppice_span *spans;
    int64_t n_spans;
    int64_t from, to;           // tokens of the scorer before and after
    double ms_score, ms_others; // what it took
    const char *reason;         // why nothing was left out; NULL: something was
};

// The conversation's last user turn is the question. o NULL: the defaults.
int coppice_compress(struct coppice_compressor *c, const struct coppice_text *messages, int64_t n,
                     const struct coppice_compress_options *o, struct coppice_compression *out,
                     struct coppice_error *e);

#ifdef __cplusplus
}
#endif

#endif
