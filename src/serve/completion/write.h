// SPDX-License-Identifier: Apache-2.0
// What goes out of a request for text, by file of this folder: its answer (write.c), parted into
// items and given to the writer of its interface, while it comes or all at the end; what is counted
// and logged of it (record.c); with --keep-requests what is kept of it (keep.c); and with
// `coppice.trees` the tree of guesses of every step, as server-sent events for a client that has
// the request's id (trees.c). Loop thread only.
#ifndef COPPICE_SERVE_COMPLETION_WRITE_H
#define COPPICE_SERVE_COMPLETION_WRITE_H

#include "serve/completion/completion.h"

// Head of a streamed answer and its first events, which show that the server is alive.
void completion_write_begin(struct completion *c);
// What of a choice has been taken in and not been written; with its end where it has ended.
void completion_write_chunk(struct completion *c, struct choice *k);
// An event without words, where nothing has been written for a while.
void completion_write_alive(struct completion *c);
// Gives the exchange back with the end of the stream or the whole answer.
void completion_write_end(struct completion *c);
// Gives the exchange back with an error, in whatever form is still possible.
void completion_write_error(struct completion *c, const struct api_error *why);

// Log-probabilities of tokens that have not been shown, and before them, where echo is set, those
// of the prompt. Returns how many spans there are.
int completion_logprobs(const struct completion *c, struct choice *k, bool echo,
                        struct answer_logprobs span[2]);

// "coppice": {...}, the server's own part of an answer, where the request requests it.
void completion_extra(const struct completion *c, struct json_writer *w);

// Sums over the choices; whole once all have ended, zeros before they are made.
struct answer_totals completion_totals(const struct completion *c);

// n tokens of a choice have been taken in.
void record_tokens(struct choice *k, int64_t n);
// The end of everything: counts it and writes its line. why: NULL or zeroed where all went well.
void record_end(struct completion *c, const struct api_error *why);

// With --keep-requests: a line for each choice that has been answered, or cut off, with all that is
// needed to give it again (serve/keep/read.h).
void completion_keep(struct completion *c, const struct api_error *why);

// Moves trees that the engine has kept to the watcher, as far as it takes them. ended: no more will
// come, so a last event with the counts follows the last tree, and the watcher is given back.
void completion_trees_advance(struct completion *c, bool ended);
// Gives the watcher back without that.
void completion_trees_drop(struct completion *c);

#endif
