// SPDX-License-Identifier: Apache-2.0
// The exactness test of tests/property on a device. A few cases, as under a memory checker, cannot
// hold every kind of event; a hundred must. In as many as there are pairs some borrow slots of
// experts.
#include "gpu/suites.h"
#include "property/exact.h"
#include "support/device.h"

enum { LENDING_CASES = 40, ALL_EVENTS = 100 };

void suite_property(const char *level, const struct gpu_options *o, struct gpu_counts *n) {
    struct exact_options x = {
        .level = level, .first = o->first, .cases = o->cases, .only = -1, .brief = o->brief};
    struct exact_result r;
    struct err e = {0};
    int rc = exact_run(&x, &r, &e);
    if (rc) {
        gpu_line(n, false, level, "property", "rule E", "%s", e.text);
        return;
    }
    bool enough = o->brief || r.rare == 0 || r.cases < ALL_EVENTS;
    bool lends = device_level(level) && !o->brief;
    bool lent = !lends || r.loans > 0 || r.cases < LENDING_CASES;
    gpu_line(n, r.failed == 0 && enough && lent, level, "property", "rule E",
             "%lld random cases, %d with other output, %d kinds of event too rare, slots of "
             "experts lent %lld times in %d of %d pairs that can%s%s",
             (long long)r.cases, r.failed, r.rare, (long long)r.loans, r.lent, r.lending,
             r.failed ? ": " : "", e.text);
}
