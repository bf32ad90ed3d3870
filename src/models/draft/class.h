// SPDX-License-Identifier: Apache-2.0
// What a kind of draft has to offer: its traits, what it takes of memory, its guesses. A draft is a
// model that reads what its target computes (struct model_reader), has an attachment of its own
// besides every sequence, and guesses by passes of its own. The kinds are rows of the table in
// draft.c; who uses a draft includes draft.h.
#ifndef COPPICE_MODELS_DRAFT_CLASS_H
#define COPPICE_MODELS_DRAFT_CLASS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "models/model.h"

struct dflash_options;
struct path;
struct eagle3_options;
struct mtp_options;

// Which tokens a draft can guess that has a head of its own choice (head.h): those of the list, a
// text file of ids; without one the first `rows` of the vocabulary, 0: all of them. Marks such as
// ends of turns are always among them.
enum { DRAFT_VOCAB_AUTO = -1, DRAFT_VOCAB_USUAL = 32768 };
struct draft_vocab_options {
    // DRAFT_VOCAB_AUTO: DRAFT_VOCAB_USUAL of a vocabulary more than twice as large whose ids are in
    // the order of merges, else all.
    int64_t rows;
    const char *list; // NULL: none
};

// What the guesses below a node depend on, besides what is committed.
enum draft_depends {
    DRAFT_BY_DEPTH,  // how deep it is
    DRAFT_BY_PARENT, // and which token it has
    DRAFT_BY_PATH,   // and all tokens on the way to it
};

struct draft_traits {
    const char *name; // of the kind: "dflash"
    enum draft_depends depends;
    int max_depth;     // of its deepest guess
    int trained_depth; // what it was trained for: deeper ones are extrapolated
    int passes;        // for guesses of n depths: 0: one, 1: n
    int width;         // nodes of a depth that a level of a sequence may have; 0 counts as 1
    double pass_bytes; // of files that such a pass of one row reads, where there are n
};

// A guessed token. Nodes of a member are numbered in the order in which levels name them, level by
// level, from the root, which is 0.
struct draft_node {
    int32_t parent; // its number
    int32_t token;
    int32_t depth; // 1: below the root
};

// One sequence's part of a pass: what follows the nodes of one depth is wanted.
struct draft_level {
    struct sequence *seq;           // its len tokens are committed
    int32_t root;                   // the newest token, at position len, not yet run
    const struct draft_node *nodes; // [n] of that depth; NULL at depth 0, where it is the root
    int n;                          // 1 at depth 0
    int depth;                      // of the nodes
    int k;                          // candidates of each
    int reach;                      // of begin: how many depths will be requested at most; 0: all
    // NULL, or of the target's draw after a node of that depth; of begin: [reach], of all depths.
    const struct sample_row *noise;
};

// Candidates for the nodes of one member, best first. DRAFT_BY_PATH: below each of the level's
// nodes. Else all depths at once, from the root's level: see struct proposal (spec/tree/ddtree.h).
struct draft_guesses {
    const int32_t *ids; // [nodes][k], or [depth][k]: token ids
    const float *logp;  // the same; not finite: no candidate
    const float *pair;  // NULL, or [depth - 1][k][k]
    int depth;          // 1, or of all
    int k;              // 0: nothing can be guessed, as there is no room for nodes
};

// What loading and sequences take, bytes.
struct draft_plan {
    const char *name;   // of the kind
    int64_t weights;    // in the backend's layout; what it shares with the target is not counted
    int64_t scratch;    // workspace
    int64_t pending;    // of a sequence, besides keys and values
    struct kv_needs kv; // keys and values per sequence
    struct exec_limits limits; // for exec_own_bytes
};

// Where a draft comes from.
extern const char DRAFT_OF_TARGET[]; // as a path: the draft is in the target's own file
struct draft_source {
    const char *path; // of a file or folder
    // Options of its kind, for others than the kind's own.
    const struct dflash_options *dflash;
    const struct mtp_options *mtp;
    const struct eagle3_options *eagle3;
    struct draft_vocab_options vocab;
};

// One kind. begin and level are called where traits say that guesses depend on the path; drafts of
// other traits have a drafter of their own (spec/draft/dflash.c).
struct draft_class {
    const char *name;
    // Whether this kind reads it. file: the open GGUF file of the path, the target's for
    // DRAFT_OF_TARGET; NULL: it is no GGUF file.
    bool (*takes)(const char *path, const struct gguf *file, const struct gguf *target);
    // Makes a draft of the target and attaches it. ERR_MISMATCH names what does not fit; dry: only
    // checks and counts, attaches nothing. target->load.arg is the target's open file.
    int (*open)(void **self, struct model *target, const struct draft_source *s, bool dry,
                struct err *e);
    void (*destroy)(void *self); // after the sequences; detaches
    void (*plan)(const void *self, struct draft_plan *out);
    struct draft_traits (*traits)(const void *self);
    // A few words on which passes it has: part of the key of what was learnt about their times.
    void (*describe)(const void *self, struct str *out);
    // NULL: it can guess every token; or whether it can guess this one.
    bool (*knows)(const void *self, int32_t token);
    struct path *(*path)(void *self); // what drafts on its own guesses, or NULL
    // Before levels of these members (depth 0, distinct sequences, at most the target's max_seqs):
    // what is committed and was not read yet is read, and room for nodes is made. A member for
    // which there is no room is no error.
    int (*begin)(void *self, const struct draft_level *l, int n, struct err *e);
    // One pass for the nodes of l[n], some of the members of begin, each one deeper than its pass
    // before: out[n], whose arrays stay valid until the next call. Members of a step are all of one
    // depth.
    int (*level)(void *self, const struct draft_level *l, int n, struct draft_guesses *out,
                 struct err *e);
};
extern const struct draft_class draft_class_dflash, draft_class_mtp, draft_class_eagle3;

#endif
