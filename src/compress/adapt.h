// SPDX-License-Identifier: Apache-2.0
// Keep ratios that follow a session: where guesses about the answers are accepted less often than
// usual more of the prompt is kept, and less where they are accepted more often. The share of
// accepted guesses says little about the quality of an answer, and the output then depends on how
// the model was guessed at, so this is off unless somebody asks for it, and told when it acts.
#ifndef COPPICE_COMPRESS_ADAPT_H
#define COPPICE_COMPRESS_ADAPT_H

#include <stddef.h>
#include <stdint.h>

enum { ADAPT_SESSIONS = 1024 };

struct adapt_session {
    uint64_t id;     // hash of the session's name
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

// The ratio of a session; 0.10 of one that is new.
double adapt_keep(struct adapt *a, const char *session, size_t n);
// Tells the share of guesses that were accepted in an answer of the session, 0 to 1 (others count
// as the nearest). The mean takes 0.3 of it, the first share whole. Below a mean of 0.75 the ratio
// rises, above 0.85 it falls, by 0.005, beyond 0.70 and 0.90 by 0.01, within 0.025 to 0.20. Of more
// than ADAPT_SESSIONS the one that was not used for longest is forgotten.
void adapt_note(struct adapt *a, const char *session, size_t n, double accepted);

#endif
