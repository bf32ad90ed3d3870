// SPDX-License-Identifier: Apache-2.0
// What kernels on a device may do before all earlier ones have ended, from what each launch says of
// itself: pure logic, so that it is tested without a GPU. A launch that "begins early" runs up to
// its wait during the end of those in front of it; the wait ends when all of those have ended and
// their writes are there. What it reads in front of its wait must therefore be nothing that a
// launch which may still run writes. None writes in front of its wait.
#ifndef COPPICE_OPS_LAUNCH_ORDER_H
#define COPPICE_OPS_LAUNCH_ORDER_H

#include <stdbool.h>

// Kinds of memory, in bits.
enum memory_kind {
    MEMORY_WEIGHTS = 1, // of the model; where experts that come and go are
    MEMORY_SUMS = 2,    // scratch: parts of products, of attention
    MEMORY_ROWS = 4,    // f32 rows of a pass: results of linear layers, of norms, of experts
    MEMORY_ACTS = 8,    // rows for linear layers, also while they are f32, and their peaks
    MEMORY_DELTAS = 16, // deltas and outputs of the delta rule
    MEMORY_LISTS = 32,  // experts of rows, their weights and order
    MEMORY_STATES = 64, // bases, logs and kept inputs of recurrent layers
    MEMORY_PAGES = 128, // keys and values
    MEMORY_FRESH = 256, // those at some places only (launch_says.places)
    MEMORY_PASS = 510,  // all that passes write: everything but weights
    MEMORY_ALL = 511,
};

// A launch's description.
struct launch_says {
    unsigned early;     // kinds that it may read in front of its wait
    unsigned writes;    // kinds that it may write
    bool ahead;         // it lets the next launch begin in front of its wait, not after it
    const void *places; // identifies those of MEMORY_FRESH that it writes; or, with MEMORY_PAGES in
                        // `early`, those that it does not read early; NULL: there are none
    bool passes;        // neither reads what ops have held back for later launches, nor writes sums
};

// What a launch is that is not described: it reads weights early and may write all but these.
#define LAUNCH_UNKNOWN {MEMORY_WEIGHTS, MEMORY_PASS, false, (void *)0, false}

// What may be unfinished when the next launch begins early: what the newest one writes, and what
// those in front of it write as far as each of them lets the next begin ahead.
struct launch_order {
    unsigned open; // kinds; FRESH: at `places` only
    const void *places;
    bool whole; // the next launch may not begin early, whatever it reads
};

// Whether a launch may read `early` kinds in front of its wait if it is the next.
static inline bool launch_order_may(const struct launch_order *o, const struct launch_says *s) {
    const bool other = (o->open & MEMORY_FRESH) && o->places != s->places;
    if (o->whole || (s->early & o->open & ~(unsigned)MEMORY_FRESH))
        return false;
    return !(other && (s->early & (MEMORY_PAGES | MEMORY_FRESH)));
}

// Adds the next launch; early: it may begin early, which only follows from launch_order_may.
// A launch that waits first thing, or lets none begin before it has waited, is the only one that
// may be unfinished after itself. One that lets others ahead leaves open what was open before.
static inline void launch_order_add(struct launch_order *o, const struct launch_says *s,
                                    bool early) {
    unsigned open = s->writes;
    const void *places = s->places;
    if (early && s->ahead) {
        const bool both = (open & MEMORY_FRESH) && (o->open & MEMORY_FRESH);
        if (both && o->places != places)
            open |= MEMORY_PAGES;
        places = open & MEMORY_FRESH ? places : o->places;
        open |= o->open;
    }
    o->open = open;
    o->places = open & MEMORY_FRESH ? places : (void *)0;
    o->whole = false;
}

// Something else has written memory after the newest launch, or is waited for: all but weights may
// be unfinished; and weights, too.
static inline void launch_order_forget(struct launch_order *o) {
    o->open |= MEMORY_PASS & ~(unsigned)MEMORY_FRESH;
}

static inline void launch_order_stop(struct launch_order *o) {
    o->whole = true;
}

#endif
