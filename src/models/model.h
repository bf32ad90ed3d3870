// SPDX-License-Identifier: Apache-2.0
// A loaded target model: hyper-parameters, weights, one workspace, and the one forward function.
// Each architecture is a row of archs[] and a file; this header hides which one it is. Models call
// the op table and nothing else, and nothing allocates inside a pass except whole KV pages.
#ifndef COPPICE_MODELS_MODEL_H
#define COPPICE_MODELS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "formats/gguf/gguf.h"
#include "models/params.h"
#include "ops/experts/store.h"
#include "ops/ops.h"
#include "state/forest.h"
#include "state/sequence.h"

struct model;

enum { MODEL_MAX_CTX = 1 << 20 }; // tokens of a sequence

enum { MODEL_WORKSPACES = 6 }; // workspaces for passes of different numbers of rows

// Which slots of experts a model lends, and for what (ops/experts/pool.h).
struct model_lending {
    int64_t own;    // what the workspace of max_rows takes, if it lies between the slots; else 0
    int64_t scorer; // bytes that model_vacate gives
    // Passes of more rows than max_rows, ever more, whose workspace lies in the place of slots
    // while they run; all of it takes `bytes` of each.
    int n;
    struct {
        int rows;
        int64_t bytes;
    } pass[MODEL_WORKSPACES - 1];
};

struct model_options {
    enum kv_codec_id codec_k, codec_v; // how keys and values are stored
    int64_t max_ctx;                   // tokens per sequence; 0: the trained context
    int max_rows;                      // rows of a pass; 0: 512. At least max_verify
    int max_verify;                    // of which rows of trees; 0: 128
    int max_seqs;                      // sequences in one pass; 0: 8
    int max_logits;                    // rows of logits held at once; 0: max_verify, at most 128
    struct sparse_rule sparse;         // of rows that read prompts (ops/attention.h)
    struct view_rule view;             // of rows of replies (state/view.h)
    struct kv_budget *pages;           // of this model and its draft together; NULL: no limit
    struct rope_options rope;          // in place of what the file says of positions
    int64_t fp16_kv;                   // bytes of exec_limits.fp16_kv at most; 0: none
    int ranks;                         // devices that share the model; 0: 1, as yet the only number
    // Slots of experts on a device that cannot hold all (ops/experts/pool.h); zeroed: it holds
    // them.
    struct expert_classes experts;
    const uint32_t *uses;         // NULL, or which experts are hot, [layers with experts][experts]
    struct model_lending lending; // of slots; zeroed: none
    int lent_rows; // rows of the largest of them that is possible, for a plan (model_max_pass_rows)
    // Experts of the first that many layers of them have their place with the ops of `cpu`, which
    // is an exec of its own (ops/experts/host.h); slots and uses are of the others. cpu may be NULL
    // where nothing is loaded.
    int cpu_experts;
    struct exec *cpu;
    int64_t memory_limit; // bytes for weights, scratch and one full sequence; 0: none
};
// F16 KV, everything else 0 (that is: the defaults above).
struct model_options model_options_default(void);

// Bytes, without loading: what model_load and its sequences will take.
struct model_plan {
    int64_t weights;           // in the backend's layout
    int64_t scratch;           // workspace of the model
    struct kv_needs kv;        // target KV of a sequence, which is reserved for at most
    int64_t step;              // that many tokens at once: the rows of a pass
    int64_t recurrent;         // per sequence
    int64_t checkpoint;        // per recurrent checkpoint
    struct exec_limits limits; // for exec_own_bytes
    int64_t rows;              // of scratch: what is made for the rows of a pass, and the same with
    int64_t room;              // what it needs of its own in the place of lent slots
    // Experts by class, without slots, and what they take of `weights` besides what stays with the
    // device; nothing where there are none.
    struct expert_classes experts;
    int64_t expert_bytes;
    int expert_layers;  // layers with experts, those of cpu_experts included, whose experts
    int64_t host_bytes; // take as much of the host's memory and are not in `weights`
};
// x may be NULL: weights are then counted at their size in the file.
int model_plan(struct model_plan *p, struct model_params *params, const struct exec *x,
               const struct gguf *g, const struct model_options *o, struct err *e);

// g must stay open and x alive as long as the model. Refuses unknown architectures, variants that
// are not implemented, and any tensor whose shape is not the one that the metadata implies.
int model_load(struct model **out, struct exec *x, const struct gguf *g,
               const struct model_options *o, struct err *e);
void model_destroy(struct model *m); // after its sequences and readers; NULL is allowed

const struct model_params *model_params_of(const struct model *m);
struct exec *model_exec(const struct model *m);
// Gives the memory of slots, as much as options.lending.scorer, back to the device, and the usual
// workspace with it; until model_occupy the model may not be used. ERR_MEMORY: nothing has changed,
// or, after model_occupy, others have it and the exec has a fault.
int model_vacate(struct model *m, struct err *e);
int model_occupy(struct model *m, struct err *e);
// What the bits of its results depend on besides the file and model_options: exec_kind, and which
// experts are the CPU's. Kept until the model goes.
const char *model_kind(const struct model *m);
// Where its experts come and go; NULL: all are resident, or it has none.
struct expert_store *model_experts(const struct model *m);
int64_t model_max_ctx(const struct model *m);
int model_max_rows(const struct model *m); // of a pass, in the place of lent slots if need be
// The same for options: where there is a loan, its rows.
int model_max_pass_rows(const struct model_options *o);
// Rows that passes over n tokens of prompts should have at most: those without a loan, or with the
// loan that brings the fewest bytes of experts for them.
int64_t model_rows_for(const struct model *m, int64_t n);
// Rows that a pass which has that many for certain may have without another loan.
int64_t model_rows_without_new_loan(const struct model *m, int64_t rows);
int model_max_verify(const struct model *m);
int model_max_seqs(const struct model *m);

// A new empty sequence, with an attachment for each reader of this moment.
int model_sequence(const struct model *m, struct sequence **out, struct err *e);
struct sequence_spec model_spec(const struct model *m); // of such a sequence

// Someone who reads along, such as a draft: the outputs of some layers for every row of a pass, and
// an attachment besides every sequence that is made from now on. When rows become part of a
// sequence, its attachment is told which rows of the pass they were (attachment_kind.append); their
// features are in `features` until the next pass.
// In the place of a layer, and then alone: the hidden states after the output norm, of which the
// head makes logits (it may round its own copy of them; these are float32).
enum { MODEL_TAP_NORMED = -1 };
struct model_reader {
    const struct attachment_kind *kind;
    const int32_t *layers; // [n_layers], counted from 0; or one MODEL_TAP_NORMED
    int n_layers;
    float *features; // [max_rows][n_layers][D], on the model's device
};
// Borrows what r points to until model_detach, which comes after the sequences. ERR_STATE: a reader
// of that name is there; ERR_LIMIT: there are SEQ_ATTACHED; ERR_USAGE: a layer is not the model's,
// or MODEL_TAP_NORMED stands with others; ERR_UNSUPPORTED: the backend lacks the op norm for it.
int model_check_reader(const struct model *m, const char *name, struct err *e);
int model_attach(struct model *m, const struct model_reader *r, struct err *e);
void model_detach(struct model *m, const struct attachment_kind *kind); // that it may not have
// Lets readers prepare for rows of the last pass that will be committed, whichever they are. Calls
// ops, changes nothing that can be seen, and need not be called.
void model_precompute(struct model *m);

// Runs the rows of f, whose seq fields index seqs[n_seqs] (distinct sequences of this model; one
// may have no rows). Each sequence has a prompt chain or trees, as forest_check requires it:
// - All rows of a chain are part of its sequence when the call returns. A plain decoding step is a
//   chain of one row.
// - Rows of trees touch no sequence; model_commit makes one path a sequence part of it.
// A row's results are the same bits in either mode and together with any other rows.
// f->n <= max_rows, rows of trees <= max_verify, n_seqs <= max_seqs: ERR_LIMIT, ERR_USAGE. With
// these, ERR_MISMATCH (a sequence of another model), ERR_LIMIT (context or pages full) and
// ERR_MEMORY nothing has changed, except that the pass before can no longer be committed and its
// logits are gone. ERR_STATE: a sequence is invalid (sequence.h). Whether the device did the work
// is known from exec_status only; if it did not, the sequences with chains are invalid, and trees
// cannot be committed.
int model_forward(struct model *m, const struct forest *f, struct sequence *const *seqs, int n_seqs,
                  struct err *e);

// Logits of the last pass. The pass keeps the hidden states of its rows until the next one; the
// head runs when logits are requested, a slice at a time, and a slice stays until another is
// requested or the next pass. A row's logits are the same bits in any slice. model_commit disturbs
// neither.
int64_t model_wanted(const struct model *m);      // wanted rows of the last pass, in row order
int64_t model_logits_rows(const struct model *m); // rows of a slice at most (max_logits)
int64_t model_logits_index(const struct model *m, int32_t row); // of a forest row, -1 if not wanted
// Wanted rows first .. first + n - 1 (n <= model_logits_rows, within model_wanted): device
// [n][vocab], valid until the next call that computes. Computed now, unless they are all in the
// slice that is there.
const float *model_logits(struct model *m, int64_t first, int64_t n);
// Wanted row i, device [vocab], by its slice among slices of model_logits_rows from row 0 on: for
// callers that walk through the rows, or request one that is likely in the slice that is there.
const float *model_logits_at(struct model *m, int64_t i);

// The accepted rows of one sequence: rows[0..count) of the last pass, a root of a tree and its
// descendants, each the child of the one before. seq indexes the array given to model_forward.
struct model_path {
    int32_t seq;
    const int32_t *rows;
    int64_t count; // at least 1
};

// Makes the paths part of their sequences, all in one go; each sequence is named once at most.
// seqs: the array given to model_forward. A pass may be committed in several calls, each sequence
// once. ERR_STATE (nothing to commit, the pass has failed, or a sequence has changed since it or is
// invalid), ERR_USAGE (not a path), ERR_LIMIT, ERR_MEMORY: nothing has changed, and but for the
// pass or sequence named by ERR_STATE the paths can still be committed.
int model_commit(struct model *m, struct sequence *const *seqs, const struct model_path *paths,
                 int n_paths, struct err *e);

#endif
