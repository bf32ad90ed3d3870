// SPDX-License-Identifier: Apache-2.0
// What may be unfinished when the next launch begins: what the newest one writes, and what those in
// front of it write as far as each of them lets the next begin ahead. It owns nothing.
#include "ops/launch_order.h"

bool launch_order_may(const struct launch_order *o, const struct launch_says *s) {
    const bool other = (o->open & MEMORY_FRESH) && o->places != s->places;
    if (o->whole || (s->early & o->open & ~(unsigned)MEMORY_FRESH))
        return false;
    return !(other && (s->early & (MEMORY_PAGES | MEMORY_FRESH)));
}

// A launch that waits first thing, or lets nobody begin before it has waited, is the only one that
// may be unfinished behind itself. One that lets others ahead leaves open what was open before.
void launch_order_add(struct launch_order *o, const struct launch_says *s, bool early) {
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

void launch_order_forget(struct launch_order *o) {
    o->open |= MEMORY_PASS & ~(unsigned)MEMORY_FRESH;
}

void launch_order_stop(struct launch_order *o) {
    o->whole = true;
}
