// SPDX-License-Identifier: Apache-2.0
// Files of drafts, whatever their kind: opening them, which of their tensors were requested, the
// config.json next to safetensors with numbers and rotary settings, and tokens, which must be the
// target's.
#ifndef COPPICE_MODELS_DRAFT_CONFIG_H
#define COPPICE_MODELS_DRAFT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json/json.h"
#include "formats/gguf/gguf.h"
#include "formats/safetensors.h"
#include "ops/attention.h"

struct draft_file {
    struct gguf *g;         // else
    struct safetensors *st; // with its config.json
    struct json *config;
    uint8_t *used; // [tensors of the file] requested
    int dialect;   // which names its kind has in this file, of kinds that have several forms
};

// A GGUF file, or a safetensors file or folder. f may be closed whatever this returns.
int draft_file_open(struct draft_file *f, const char *path, struct err *e);
void draft_file_close(struct draft_file *f);
size_t draft_file_count(const struct draft_file *f); // of tensors
const struct tensor *draft_file_at(const struct draft_file *f, size_t i);
// The tensor counts as requested; NULL is passed through.
const struct tensor *draft_file_use(const struct draft_file *f, const struct tensor *t);
// load_done_fn and load_check_fn over a struct draft_file.
void draft_file_done(const void *file, const struct tensor *t);
int draft_file_check(const void *file, struct err *e);
// ERR_UNSUPPORTED where the file has a tensor that nothing requested: another kind of draft than
// `kind`. except: a name that may be left, or NULL.
int draft_file_all_used(const struct draft_file *f, const char *kind, const char *except,
                        struct err *e);

// config.json next to the weights at path, or in the folder that path is. ERR_IO, ERR_FORMAT.
int draft_config_open(struct json **out, const char *path, struct err *e);

// A number above 0; v absent: otherwise. ERR_FORMAT names key.
int draft_config_positive(const struct json *v, const char *key, double otherwise, float *out,
                          struct err *e);

// Rotary settings of layers with a sliding window or of those without one: r->base is what holds
// where the file does not say. divisors: [head_dim / 2], filled for llama3's scaling only, else
// left alone. ERR_FORMAT, ERR_UNSUPPORTED.
int draft_config_rope(struct rope *r, float *divisors, int head_dim, bool windowed,
                      const struct json *c, struct err *e);

// The first token that two lists of equal length have apart; -1: none, or they cannot be compared.
int64_t draft_token_apart(const struct gguf *draft, const struct gguf *target);
// A draft's tokens must be the target's, where both files have a list: ERR_MISMATCH.
int draft_check_tokens(const struct gguf *draft, const struct gguf *target, struct err *e);

#endif
