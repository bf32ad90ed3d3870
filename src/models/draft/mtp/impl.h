// SPDX-License-Identifier: Apache-2.0
// The inside of struct mtp, for the files of this folder only.
#ifndef COPPICE_MODELS_DRAFT_MTP_IMPL_H
#define COPPICE_MODELS_DRAFT_MTP_IMPL_H

#include "models/draft/mtp/mtp.h"
#include "models/model_impl.h"

// Hidden states of a sequence's newest tokens that are kept: positions modulo MTP_TAIL.
enum { MTP_TAIL = 64 };

// What a sequence has of the block. K and V of position p come from the hidden state there and the
// token at p + 1, so the newest committed token always waits. kv has positions 0 .. absorbed-1;
// hidden states of absorbed .. len-1 wait, 1 to MTP_TAIL of them unless len is 0.
struct mtp_state {
    struct attachment base; // len
    struct kv kv;
    int64_t absorbed;
    int64_t from;            // first position whose hidden state is in tail; <= absorbed
    bool rest;               // at rest: tail has positions from .. len-1 and no room for others
    float *tail;             // device [MTP_TAIL][D], or [len - from][D]; NULL where that is empty
    int32_t token[MTP_TAIL]; // of the same positions, always modulo MTP_TAIL
};

// A sequence of the last mtp_begin, with the rows of its draft.
struct mtp_member {
    struct mtp_state *state;
    bool ready; // can draft
    bool tree;  // some row is not the only child of the one before
    int rows, ran;
    int64_t before, at; // of a pass: where its rows that have run, and its new ones, begin
    int in_pages; // the first rows, a chain, have their K and V in slots after the committed ones
    int32_t token[MTP_NODES], parent[MTP_NODES], depth[MTP_NODES];
};

struct mtp {
    struct mtp_options options; // with defaults filled in
    int block;                  // number of the block
    struct gguf *own;           // the sidecar; NULL: it is in the target's file
    struct model *target;
    struct exec *x;
    struct attachment_kind kind; // of the state besides sequences
    uint64_t content;            // mtp_content, 0: not computed yet
    struct load load;
    struct layer layer;
    bool latent;                  // latent attention
    bool experts, attention_only; // what the feed-forward part is, if there is one
    float *enorm, *hnorm, *gnorm; // [D]
    const struct weight *join;    // eh_proj, [2D -> D]
    const struct weight *embed;
    struct draft_head head;
    bool own_output;   // output.weight is the sidecar's
    double pass_bytes; // of files that a pass of one row reads
    struct kv_layout layout;
    struct kv_pool *pool;
    // Workspace for R rows: the larger of what is absorbed at once, A, and the rows of a draft's
    // pass, P. S sequences, N = MTP_NODES.
    int64_t n_rows, absorb_rows, draft_rows;
    float *h, *u, *pair;                  // [R][D]; [R][D]; [R][2][D] embedding, hidden state
    struct act *act_pair, *act_d, *act_f; // R rows of 2D, of D; P of F
    struct attention_buffers attention;
    struct mla_buffers mla; // in its place where attention is latent
    struct moe_buffers moe;
    float *g;                              // [S][N][D] what the rows of drafts gave, normed
    unsigned char *scratch;                // pages for K and V of S N rows
    float *features;                       // the target's [rows of a pass][D]
    float *logits;                         // [logits_rows][head.rows]
    int64_t logits_rows;                   // of a slice at most
    int64_t named;                         // rows of the last mtp_rows
    int32_t *wanted;                       // host [S MTP_WIDTH] which of g they are
    int64_t logits_first, logits_n;        // the slice in `logits`
    uint64_t logits_epoch;                 // exec_epoch when it was computed
    int32_t *token, *parent, *seq, *index; // host [R]
    int64_t *pos;                          // host [R]
    struct kv_slot *store;                 // host [R]
    struct kv_view *views;                 // host [S]
    struct mtp_member *members;            // [S] of the last mtp_begin
    int n_members;
    // Guesses of the last level (class.c): host [S MTP_WIDTH][k].
    int max_k;
    int32_t *ids;
    float *logp;
    struct sample_row *noise; // [S MTP_WIDTH]
    struct sequence **seqs;   // [S]
    struct mtp_row *rows;     // [S MTP_WIDTH]
};

// Fills m->kind.
void mtp_state_kind(struct mtp *m);
// A sequence's state of this block; NULL where it has none.
struct mtp_state *mtp_state_of(const struct mtp *m, const struct sequence *s);
// A hash of the block's tensors and of what else its keys and values depend on.
uint64_t mtp_content(struct mtp *m);
// Where in the tail the hidden state of a position is.
int32_t mtp_tail_slot(const struct mtp_state *s, int64_t pos);
// Makes keys and values of all waiting positions but the newest of each member that can draft.
void mtp_absorb(struct mtp *m);

// The first n rows of the workspace's arrays as a pass of their own.
struct rows mtp_pass(const struct mtp *m, int64_t n);
// Keys and values of rows with tokens m->token and hidden states m->u, into m->store.
void mtp_store(struct mtp *m, const struct rows *rows);
// The whole block over such rows from `first` on, each of the sequence with view m->views[seq];
// those before it are ancestors that have run. Hidden states of the rows that run, [n - first][D]:
// what they begin with, and what they give, which may be the same memory.
struct mtp_hidden {
    const float *in;
    float *out;
};
void mtp_run(struct mtp *m, const struct rows *rows, int64_t first, const struct mtp_hidden *h);

// The file that has the block; tensors of it and of the target (load_find_fn and the like over a
// struct mtp).
const struct gguf *mtp_file(const struct mtp *m);
const struct tensor *mtp_find(const void *mtp, const char *name);
int mtp_check_file(const void *mtp, struct err *e);
void mtp_done(const void *mtp, const struct tensor *t);
const struct tensor *mtp_tensor(const struct mtp *m, const char *suffix); // of the block, or NULL
// A sidecar must be of the same architecture, width and vocabulary as its target.
int mtp_check_sidecar(const struct mtp *m, struct err *e);

#endif
