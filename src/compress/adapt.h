// SPDX-License-Identifier: Apache-2.0
// Keep ratios that follow a session: where less of the answers is guessed right than usual more of
// the prompt is kept, and less where more of them is. That share says little about the quality of
// an answer, and the output then depends on how the model was guessed at, so this is off unless
// somebody asks for it, and told when it acts.
#ifndef COPPICE_COMPRESS_ADAPT_H
#define COPPICE_COMPRESS_ADAPT_H

#include <stddef.h>
#include <stdint.h>

enum { ADAPT_SESSIONS = 1024 };

struct adapt_session {
    uint64_t id;
    double keep;     // ratio
    double accepted; // running mean of shares; below 0: none yet
    uint64_t used;
};

// Zeroed is valid and knows no session.
struct adapt {
    struct adapt_session sessions[ADAPT_SESSIONS];
    int n;
    uint64_t clock;
};

// The id of a session's name, never 0.
uint64_t adapt_id(const char *name, size_t n);
// The ratio of a session; 0.10 of one that is new.
double adapt_keep(struct adapt *a, uint64_t session);
// The share of an answer that was guessed, from its accept length: of `tokens` behind the first,
// committed in `passes` that verified guesses. Below 0: there were none.
double adapt_share(int64_t tokens, int64_t passes);
// Tells the share of an answer of the session that was guessed, 0 to 1 (others count as the
// nearest). The mean takes 0.3 of it, the first share whole. Below a mean of 0.75 the ratio
// rises, above 0.85 it falls, by 0.005, beyond 0.70 and 0.90 by 0.01, within 0.025 to 0.20. Of more
// than ADAPT_SESSIONS the one that was not used for longest is forgotten.
void adapt_note(struct adapt *a, uint64_t session, double accepted);

#endif
