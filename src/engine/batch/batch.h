// SPDX-License-Identifier: Apache-2.0
// Requests that step together. A job is one request in progress, owned by its batch from joining to
// leaving: a member of the step (spec/step/step.h) with a reply that grows. One pass of the target
// runs pieces of some prompts together with decoding steps of others. Requests join and leave
// between any two passes, with their own sampling, limits and ways of guessing, and get the tokens
// that they would get alone. One thread owns a batch and its session. Queues, time limits and what
// to do when memory runs out are the caller's; the functions at the end run requests to their end
// in one call.
#ifndef COPPICE_ENGINE_BATCH_BATCH_H
#define COPPICE_ENGINE_BATCH_BATCH_H

#include "engine/batch/request.h"

struct batch;

// For at most max_members requests that take part in one step, 1 to the session's max_seqs. Any
// number may have joined and be parked.
int batch_create(struct batch **out, struct session *s, int max_members, struct err *e);
void batch_destroy(struct batch *b); // its jobs leave; NULL is allowed

// One request in progress.
struct job;

// Takes up a request. What r points at must stay valid until the job leaves; *out is zeroed first
// and filled as the job goes on: call reply_fini after batch_leave, in any case. After an error
// nothing has joined.
int batch_join(struct batch *b, const struct request *r, struct reply *out, struct job **job,
               struct err *e);
// Takes a job out, ended or not, and frees it; its reply stays.
void batch_leave(struct batch *b, struct job *j);
// The same, and its sequence becomes the caller's.
struct sequence *batch_take(struct batch *b, struct job *j);

// A parked job takes no part in steps and keeps its state.
void job_park(struct job *j, bool parked);
// From now on it decodes without the session's draft: its guesses, not its tokens, are others.
void job_undraft(struct job *j);

// 0 while all is well, else why the job failed, with its sentence; it takes part in no more steps.
int job_failed(const struct job *j, struct err *e);
bool job_ended(const struct job *j);   // its reply is whole, or it has failed
bool job_decodes(const struct job *j); // its prompt has been run
int64_t job_left(const struct job *j); // tokens to be run before it decodes
// Most tokens that the next step may make part of its sequence when it decodes.
int64_t job_growth(const struct job *j);
bool job_constrained(const struct job *j);
// Steps that its constraint has counted for it so far (spec/constraint/constraint.h); 0 without
// one.
int64_t job_mask_work(const struct job *j);
// masks_prepare and masks_allow of what holds its reply (spec/constraint/masks.h); 0 and nothing
// where nothing does.
int job_prepare_masks(struct job *j, int64_t steps);
void job_allow_masks(struct job *j, int64_t root, int64_t guesses);
// Whether its last step came to nothing, because what was allowed for its root's mask was too
// little: it is as it was before, but for rows that are run again.
bool job_unfinished(const struct job *j);
// Its last step: the tree that was verified and the walk through it; read only.
const struct member *job_member(const struct job *j);

// Gives the pages of its text back: the sequence, valid or not, becomes empty, and prompt and
// reply so far are run again in pieces before the job goes on, which changes nothing in its reply.
// After an error (ERR_MEMORY) it is as it was.
int job_drop(struct job *j, struct err *e);

// What it will go on from: the prompt, or after job_drop prompt and reply so far. The last token
// need not have been run in a state that it goes on from.
const int32_t *job_text(const struct job *j, int64_t *n);
// Its rule of sparse reading (struct request), never 0.
int64_t job_sparse_end(const struct job *j);
// The job's sequence. Between steps a caller may exchange it for another one with the same tokens
// (a fork, a restored checkpoint with the rest run again).
struct sequence *job_sequence(const struct job *j);
void job_exchange(struct job *j, struct sequence *seq); // destroys the former one unless in_place

// One pass over all jobs that run and are not parked: every decoding one, and as many prompt tokens
// of the others, in the order of joining, as fit the session's chunk. *stepped: the jobs that took
// part; with 0 nothing was left to do. An error concerns all of them; one job's own failure does
// not (job_failed).
int batch_step(struct batch *b, int *stepped, struct err *e);

// One job's part in a pass that its caller puts together.
struct pass_slice {
    struct job *job;
    int64_t rows; // most tokens of its prompt, >= 1; of a decoding job not looked at
};

// The same for slices[n], n <= max_members, of distinct jobs that are neither parked nor ended:
// decoding ones first, then pieces, which together fit batch_piece_rows. After an error each of
// them can go on as if the pass had not been: where its sequence is invalid (sequence_usable),
// after job_drop. After ERR_DEVICE none can.
int batch_pass(struct batch *b, const struct pass_slice *slices, int n, int *stepped,
               struct err *e);
// Most rows of pieces in a pass besides that many decoding jobs.
int64_t batch_piece_rows(const struct batch *b, int decoding);

// Times of the last step.
struct step_times batch_times(const struct batch *b);

// Generates. *out is zeroed first; call reply_fini in any case. After an error it holds the tokens
// that were chosen before, which the callback has seen too.
int session_generate(struct session *s, const struct request *r, struct reply *out, struct err *e);

// The cost of the steps in which all requests were decoding.
struct generate_cost {
    int64_t steps, tokens, rows; // passes; tokens committed and rows verified, of all requests
    struct step_times ms;
};

// Generates r[n], 1 <= n <= the session's max_seqs, side by side. out[n] is zeroed first; call
// reply_fini on each in any case. cost: NULL, or filled. The first error ends all.
int session_generate_many(struct session *s, const struct request *r, int n, struct reply *out,
                          struct generate_cost *cost, struct err *e);

// Runs the first n tokens of a prompt into a sequence, which several requests may go on from. *out:
// NULL for a new one, or one that holds the first of these tokens and grows; when that fails it
// holds any number of them. The caller frees it with sequence_destroy before the session.
int session_prefill(struct session *s, const int32_t *prompt, int64_t n, struct sequence **out,
                    struct err *e);

#endif
