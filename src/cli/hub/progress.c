// SPDX-License-Identifier: Apache-2.0
// Lines about a download; see progress.h. The remaining time follows from the mean speed of this
// run.
#include "cli/hub/progress.h"

#include <stdio.h>

#include "base/clock.h"
#include "cli/cli.h"

enum { REDRAW_MS = 200, CALM_MS = 1000 };

struct hub_size hub_size(int64_t bytes) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
    struct hub_size s;
    double v = (double)bytes;
    int unit = 0;
    while (v >= 999.5 && unit < 5) {
        v /= 1000;
        unit++;
    }
    snprintf(s.text, sizeof s.text, "%.*f %s",
             unit == 0 || v >= 99.95 ? 0
             : v >= 9.995            ? 1
                                     : 2,
             v, units[unit]);
    return s;
}

static void put_time(char *to, size_t size, double seconds) {
    long s = (long)(seconds + 0.5);
    if (s < 60)
        snprintf(to, size, "%ld s", s);
    else if (s < 3600)
        snprintf(to, size, "%ld min %ld s", s / 60, s % 60);
    else
        snprintf(to, size, "%ld h %ld min", s / 3600, s % 3600 / 60);
}

void hub_progress_show(struct hub_progress *p, int64_t have) {
    double now = clock_ms();
    bool terminal = cli_progress_wanted();
    int percent = p->total ? (int)(100.0 * (double)have / (double)p->total) : 100;
    char left[32] = "", speed[64] = "";
    if (p->begun <= 0) {
        p->begun = now;
        p->first = have;
        p->tenth = percent / 10;
    }
    p->have = have;
    if (terminal ? now - p->shown < REDRAW_MS && have < p->total : percent / 10 <= p->tenth)
        return;
    p->tenth = percent / 10;
    p->shown = now;
    double rate = (double)(have - p->first) / (now - p->begun) * 1000;
    if (now - p->begun >= CALM_MS && rate > 0) {
        put_time(left, sizeof left, (double)(p->total - have) / rate);
        snprintf(speed, sizeof speed, ", %s/s, %s left", hub_size((int64_t)rate).text, left);
    }
    fprintf(stderr, "%scoppice: %s of %s, %d %%%s%s", terminal ? "\r" : "", hub_size(have).text,
            hub_size(p->total).text, percent, speed, terminal ? "\033[K" : "\n");
    p->open = terminal;
}

void hub_progress_end(struct hub_progress *p) {
    if (p->open)
        fputc('\n', stderr);
    p->open = false;
}
