// SPDX-License-Identifier: Apache-2.0
// The exactness test of tests/property on a device. A few cases, as under a memory checker, cannot
// hold every kind of event; a hundred must.
#include "gpu/suites.h"
#include "property/exact.h"

void suite_property(const char *level, const struct gpu_options *o, struct gpu_counts *n) {
    struct exact_options x = {.level = level, .first = o->first, .cases = o->cases, .only = -1};
    struct exact_result r;
    struct err e = {0};
    int rc = exact_run(&x, &r, &e);
    if (rc)
        gpu_line(n, false, level, "property", "rule E", "%s", e.text);
    else
        gpu_line(n, r.failed == 0 && (r.rare == 0 || r.cases < 100), level, "property", "rule E",
                 "%lld random cases, %d with other output, %d kinds of event too rare, slots of "
                 "experts lent %lld times%s%s",
                 (long long)r.cases, r.failed, r.rare, (long long)r.loans, r.failed ? ": " : "",
                 e.text);
}
