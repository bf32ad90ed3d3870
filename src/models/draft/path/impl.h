// SPDX-License-Identifier: Apache-2.0
// The inside of struct path, for the files of this folder and for the kinds of drafts that have one
// as their first part.
#ifndef COPPICE_MODELS_DRAFT_PATH_IMPL_H
#define COPPICE_MODELS_DRAFT_PATH_IMPL_H

#include "models/draft/path/path.h"
#include "models/model_impl.h"

// Hidden states of a sequence's newest tokens that are kept: positions modulo PATH_TAIL.
enum { PATH_TAIL = 64 };

// Where row 0 of the last draft has put its K and V. They come from the target's own hidden state,
// so they are those of the newest position, if the token that is committed next is the row's.
struct path_root {
    const unsigned char *page; // NULL: nowhere
    int32_t token;
    uint64_t epoch; // exec_epoch when they were made
};

// What a sequence has of the draft. K and V of position p come from the hidden state there and the
// token at p + 1, so the newest committed token always waits. kv has positions 0 .. absorbed-1;
// hidden states of absorbed .. len-1 wait, 1 to PATH_TAIL of them unless len is 0.
struct path_state {
    struct attachment base; // len
    struct kv kv;
    int64_t absorbed;
    struct path_root root;    // of position absorbed; until rows are committed, or cut
    int64_t from;             // first position whose hidden state is in tail; <= absorbed
    bool rest;                // at rest: tail has positions from .. len-1 and no room for others
    float *tail;              // device [PATH_TAIL][D], or [len - from][D]; NULL where that is empty
    int32_t token[PATH_TAIL]; // of the same positions, always modulo PATH_TAIL
};

// A sequence of the last path_begin, with the rows of its draft.
struct path_member {
    struct path_state *state;
    bool ready; // can draft
    bool tree;  // some row is not the only child of the one before
    int rows, ran;
    int64_t before, at; // of a pass: where its rows that have run, and its new ones, begin
    int in_pages; // the first rows, a chain, have their K and V in slots after the committed ones
    int32_t token[PATH_NODES], parent[PATH_NODES], depth[PATH_NODES];
};

// Hidden states of the rows that run, [n - first][D]: what they begin with, and what they give,
// which may be the same memory.
struct path_hidden {
    const float *in;
    float *out;
};

// The arithmetic of a kind of draft, over rows with tokens d->token and slots d->store. d is the
// first part of that draft.
struct path_block {
    const char *kind; // of draft and attachment: "mtp"
    const char *what; // in sentences: "prediction block"
    // Hidden states of rows index[n] of the target's last pass: device out[n][D], n <= n_rows.
    void (*hidden)(struct path *d, const int32_t *index, int64_t n, float *out);
    // Keys and values of rows with hidden states d->u.
    void (*store)(struct path *d, const struct rows *rows);
    // The whole layer over rows from `first` on, each of the sequence with view d->views[seq];
    // those before it are ancestors that have run.
    void (*run)(struct path *d, const struct rows *rows, int64_t first,
                const struct path_hidden *h);
    uint64_t (*content)(struct path *d); // a hash of what keys and values depend on; never 0
};

struct path {
    const struct path_block *block;
    struct model *target;
    struct exec *x;
    struct attachment_kind kind; // of the state besides sequences
    int depth;                   // deepest guess
    int64_t dim;                 // D, of hidden states
    float eps, logit_cap;        // of the norm before the head, and of logits; 0: no cap
    float *head_norm;            // [D]; NULL: what rows give is normed already
    struct draft_head head;
    double pass_bytes; // of files that a pass of one row reads
    struct load load;
    struct kv_layout layout;
    struct kv_pool *pool;
    // Workspace for R rows: the larger of what is absorbed at once, A, and the rows of a draft's
    // pass, P. S sequences, N = PATH_NODES.
    int64_t n_rows, absorb_rows, draft_rows;
    float *u;                              // [R][D]
    struct act *act_d;                     // R rows of D
    const float *act_of;                   // the row of g that act_d has; NULL: something else
    float *g;                              // [S][N][D] what the rows of drafts gave
    unsigned char *scratch;                // pages for K and V of S N rows
    float *logits;                         // [logits_rows][head.rows]
    int64_t logits_rows;                   // of a slice at most
    int64_t named;                         // rows of the last path_rows
    int32_t *wanted;                       // host [S PATH_WIDTH] which of g they are
    int64_t logits_first, logits_n;        // the slice in `logits`
    uint64_t logits_epoch;                 // exec_epoch when it was computed
    int32_t *token, *parent, *seq, *index; // host [R]
    int64_t *pos;                          // host [R]
    struct kv_slot *store;                 // host [R]
    struct kv_view *views;                 // host [S]
    struct path_member *members;           // [S] of the last path_begin
    int n_members;
    // Guesses of the last level (level.c): host [S PATH_WIDTH][k].
    int max_k;
    int32_t *ids;
    float *logp;
    struct sample_row *noise; // [S PATH_WIDTH]
    struct sequence **seqs;   // [S]
    struct path_row *rows;    // [S PATH_WIDTH]
};

// Sets block, target, x and depth (0: PATH_DEPTH), and fills d->kind. ERR_USAGE: not that deep;
// ERR_STATE, ERR_LIMIT as model_check_reader.
int path_init(struct path *d, const struct path_block *block, struct model *target, int depth,
              struct err *e);
// Workspace and pool, once head and layout are known. path_rows_of, before: n_rows and the like.
void path_rows_of(struct path *d);
int path_workspace(struct path *d, struct err *e);
// What drafting needs of ops, besides what weights and activations determine: joined into d->load.
// inputs: the widest that a matrix takes.
void path_limits(struct path *d, int64_t inputs, int n_heads, int head_dim);

// Functions of draft_class that all such kinds have. self: the draft, which begins with its path.
void path_plan(const void *self, struct draft_plan *p);
struct draft_traits path_traits(const void *self);
bool path_knows(const void *self, int32_t token);
struct path *path_of(void *self);
int path_level_begin(void *self, const struct draft_level *l, int n, struct err *e);
int path_level(void *self, const struct draft_level *l, int n, struct draft_guesses *out,
               struct err *e);
// The end of draft_class.describe: how many tokens it can guess, if not all.
void path_describe_head(const struct path *d, struct str *out);
void path_fini(struct path *d); // detaches first

// A sequence's state of this draft; NULL where it has none.
struct path_state *path_state_of(const struct path *d, const struct sequence *s);
// Fills d->kind.
void path_state_kind(struct path *d);
// Where in the tail the hidden state of a position is.
int32_t path_tail_slot(const struct path_state *s, int64_t pos);
// Makes keys and values of all waiting positions but the newest of each member that can draft.
void path_absorb(struct path *d);
// The first n rows of the workspace's arrays as a pass of their own.
struct rows path_pass(const struct path *d, int64_t n);

#endif
