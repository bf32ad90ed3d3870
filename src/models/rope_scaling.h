// SPDX-License-Identifier: Apache-2.0
// Positions that turn more slowly than a model was trained with, so that longer contexts can be
// used: what a file says of it (linear, YaRN), and options in its place. The angles themselves are
// in ops/attention.h; bands of frequencies (llama3) are a tensor, rope_freqs.weight.
#ifndef COPPICE_MODELS_ROPE_SCALING_H
#define COPPICE_MODELS_ROPE_SCALING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "formats/gguf/gguf.h"
#include "ops/attention.h"

struct model_params;

// How positions are to turn, in place of what the file says; 0: as the file says.
enum rope_scaling { ROPE_OF_FILE, ROPE_UNSCALED, ROPE_LINEAR, ROPE_YARN };
struct rope_options {
    enum rope_scaling scaling;  // where the file has none either and a factor is given: linear
    float factor, base;         // how much longer the context becomes; base of the angles
    int64_t trained;            // YaRN: context that the model was trained with, tokens
    bool has_ramp;              // YaRN: ramp below is given
    float ramp;                 // as in struct rope
    float magnitude;            // YaRN: times the usual one, 1 + 0.1 ln factor
    float beta_slow, beta_fast; // YaRN: as in struct rope
};
// As they are given to a subcommand; nothing where none is.
void rope_options_print(const struct rope_options *o, struct str *out);

// Slower positions for contexts longer than the trained one, into p->rope (set before): linear, or
// YaRN (arXiv 2309.00071), with which p->context grows to what the factor is for; then what
// p->rope_options say in the place of the file. ERR_UNSUPPORTED for other kinds; ERR_USAGE.
int rope_scaling_read(struct model_params *p, const struct gguf *g, struct err *e);
// The options alone: r and *context are what a file says. Both end with what is used. ERR_USAGE
// where options contradict each other or lack a factor.
int rope_scaling_apply(struct rope *r, int64_t *context, const struct rope_options *o,
                       struct err *e);
// The same for a draft, which reads the target's positions: its own angles, scaled as the target's
// are by options. Without options it keeps what its file says.
int rope_scaling_follow(struct rope *r, const struct model_params *target, struct err *e);

#endif
