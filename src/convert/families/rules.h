// SPDX-License-Identifier: Apache-2.0
// Shared by the files of convert only: rules and keys that several architectures have alike.
#ifndef COPPICE_CONVERT_FAMILIES_RULES_H
#define COPPICE_CONVERT_FAMILIES_RULES_H

#include "convert/plan.h"

// Parts of decoders under the usual names; lists end with a rule without a name.
extern const struct convert_rule convert_begin[], convert_attention[], convert_qkv_biases[],
    convert_head_norms[], convert_dense[], convert_shared_expert[];
extern const struct convert_rule convert_output, convert_ffn_norm, convert_router,
    convert_choice_bias;

// j->model from sizes that have been read; tied: where config.json does not say.
struct convert_model convert_model_of(const struct convert_job *j, bool tied);
// Of EAGLE-3; see convert_draft.
int convert_eagle3(struct convert_job *j, struct err *e);
// Rows of a DFlash draft's head, in the place of another size.
enum { DIM_DRAFT_ROWS = DIM_2D };
// Of DSpark drafts, in the plan of convert_draft: whether a folder is one; keys and tensors besides
// those of all drafts. With DIM_DRAFT_ROWS tokens of DIM_V their embedding and head are no copies.
bool convert_is_dspark(const struct convert_job *j);
int convert_dspark(struct convert_job *j, struct err *e);
// The path of a draft's setting, which is in dflash_config, in dspark_config or at the top; buf has
// room for it.
const char *convert_draft_key(const struct hf_file *f, const char *name, char *buf, size_t size);
// What a draft says of its target: width of hidden states and layers; -1: it does not say, and then
// what the target has.
struct convert_fit {
    int64_t width, layers;
};
// Checks that and the vocabulary, and copies the tokenizer, of the target or the one next to the
// draft.
int convert_fit_target(struct convert_job *j, struct convert_fit *fit, struct err *e);
// Keys of a draft's rotary settings. pairs: halves of heads become pairs (HEADS_PAIRS), which is
// for heads that turn as a whole.
int convert_put_draft_rope(struct convert_job *j, bool pairs, struct err *e);
// d2t of a draft's folder, which has how much each token is above the number of its row in the
// head, as tokens; *rows: how many, as it was where there is none.
int convert_take_tokens(struct convert_job *j, int64_t *rows, struct err *e);
// convert_take where the folder has such a tensor; outside of layers.
int convert_take_present(struct convert_job *j, const struct convert_rule *r, struct err *e);
// The head, unless it is the embedding, and the tokenizer.
int convert_end(struct convert_job *j, struct err *e);
// The number of experts, of those used for a row and the width of one, under the keys that a family
// has for the first two; and their keys in the file.
int convert_read_experts(struct convert_job *j, const char *count, const char *per_row,
                         int64_t *used, struct err *e);
void convert_put_experts(struct convert_job *j, int64_t used);
// The first block that is written: 0, or the first prediction block where only those are wanted.
int convert_first_block(const struct convert_job *j);
// The number of prediction blocks, if there are any; and what one has besides a layer's tensors.
void convert_put_nextn(struct convert_job *j);
int convert_take_nextn(struct convert_job *j, int block, struct err *e);
// Element i of a list over the layers is a or b; *is tells whether it is a. Without the list it
// stays as it is.
int convert_read_either(const struct convert_job *j, const char *key, int64_t i, const char *a,
                        const char *b, bool *is, struct err *e);
// ERR_UNSUPPORTED where one of the settings is true.
int convert_refuse_true(const struct hf_file *f, const char *const *keys, size_t n, struct err *e);
// Keys of layers, context, widths and vocabulary; of heads but for those of queries.
void convert_put_widths(struct convert_job *j, int64_t context);
void convert_put_heads(struct convert_job *j);
// Both, and the norm's; eps: where config.json has none.
int convert_put_sizes(struct convert_job *j, double eps, struct err *e);

// Rotary settings: in rope_parameters or in rope_scaling (older). A place may be NULL.
struct convert_rope {
    const struct json *place[2];
};
struct convert_rope convert_rope_of(const struct convert_job *j);
const struct json *convert_rope_get(const struct convert_rope *r, const char *key); // or NULL
bool convert_rope_is(const struct convert_rope *r, const char *type);
// A positive number; otherwise <= 0 makes it required.
int convert_rope_number(const struct convert_job *j, const struct convert_rope *r, const char *key,
                        double otherwise, double *out, struct err *e);
// Keys of linear scaling and of YaRN, of a target or of a draft; nothing for other types.
int convert_put_scaling(struct convert_job *j, const struct convert_rope *r, bool target,
                        struct err *e);
// The divisor of each frequency with the scaling "llama3", as a tensor rope_freqs.weight.
int convert_add_bands(struct convert_job *j, double base, struct err *e);
// A tensor rope_freqs.weight of n numbers, which the caller fills before the plan is written.
int convert_add_divisors(struct convert_job *j, int64_t n, float **out, struct err *e);

#endif
