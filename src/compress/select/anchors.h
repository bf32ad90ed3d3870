// SPDX-License-Identifier: Apache-2.0
// Anchors: chunks in which four tokens of the query follow each other as they do there. Names and
// numbers of a question are found by their spelling, whatever the scores say.
#ifndef COPPICE_COMPRESS_SELECT_ANCHORS_H
#define COPPICE_COMPRESS_SELECT_ANCHORS_H

#include "compress/select/chunks.h"

enum { ANCHOR_RUN = 4, ANCHOR_QUERY = 96 };

struct anchor_search {
    const int32_t *ids;        // [end]
    int64_t query, end;        // the query: tokens query .. end - 1, of which the last 96 count
    const struct chunks *cuts; // of the same tokens
    int radius, hits;          // 0: by the number of chunks
};

// Appends to order (vec of *cap, *n used) the chunks of anchors, runs with the fewest places first:
// all places themselves, then those at a distance of 1, and so on. A chunk may come twice. A run
// counts when it stands at `hits` places or fewer.
int anchors_find(const struct anchor_search *s, int64_t **order, int64_t *n, int64_t *cap,
                 struct err *e);

#endif
