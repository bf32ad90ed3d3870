// SPDX-License-Identifier: Apache-2.0
// The side channel of a request with `coppice.trees`: the tree of guesses of every step
// as server-sent events, for a client that has the request's id. Loop thread only.
#ifndef COPPICE_SERVE_COMPLETION_TREES_H
#define COPPICE_SERVE_COMPLETION_TREES_H

#include "serve/completion/completion.h"

// Moves trees that the engine has kept to the watcher, as far as it takes them. ended: no more will
// come, so a last event with the counts follows the last tree, and the watcher is given back.
void completion_trees_advance(struct completion *c, bool ended);
// Gives the watcher back without that.
void completion_trees_drop(struct completion *c);

#endif
