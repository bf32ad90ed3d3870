// SPDX-License-Identifier: Apache-2.0
// What one level goes through: its execs, memory between guards, timings, the lines of the table.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "opcheck/families.h"
#include "ops/exec.h"
#include "support/device.h"

// Odd as a float (-1.7e38), no number as a half: reading it by mistake does not go unnoticed.
enum { GUARD = 256, GUARD_BYTE = 0xFE, POISON_BYTE = 0xFF };
enum { BUSY_BYTES = 1 << 30 }; // of a copy that keeps a device busy

typedef void check_fn(struct check *c);

struct family {
    const char *name;
    check_fn *level, *rule, *exact, *time; // against scalar, rule E, against doubles, timings
};

static const struct family families[] = {
    {"linear", check_linear, check_linear_rule, check_linear_double, check_linear_time},
    {"weights", NULL, NULL, NULL, check_weights_time},
    {"gdn", check_gdn, check_gdn_rule, check_gdn_double, check_gdn_time},
    {"gdn_many", NULL, check_gdn_many_rule, NULL, check_gdn_many_time},
    {"gdn_layer", NULL, check_gdn_layer_rule, NULL, NULL},
    {"attend", check_attend, check_attend_rule, check_attend_double, check_attend_time},
    {"attend_many", NULL, check_attend_many_rule, NULL, check_attend_many_time},
    {"sparse", check_sparse, check_sparse_rule, check_sparse_double, check_sparse_time},
    {"choice", check_choice, check_choice_rule, check_choice_double, NULL},
    {"conv", check_conv, check_conv_rule, NULL, NULL},
    {"values", check_values, check_values_rule, check_values_double, NULL},
    {"rows", check_rows, check_rows_rule, check_rows_double, check_rows_time},
    {"moe", check_moe, check_moe_rule, check_moe_double, check_moe_time},
    {"heads", NULL, check_heads_rule, NULL, check_heads_time},
    {"mass", check_mass, NULL, check_mass_double, NULL},
    {"pages", check_pages, check_pages_rule, check_pages_double, NULL},
    {"sample", check_sample, check_sample_rule, check_sample_double, check_sample_time},
};
enum { FAMILIES = sizeof families / sizeof families[0] };

void report(struct check *c, bool ok, const char *op, const char *shape, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->passed += ok;
    c->failures += !ok;
    printf("%-6s %-10s %-22s %-34s %s\n", ok ? "ok" : "FAIL", c->level, op, shape, text);
    fflush(stdout);
}

void report_time(struct check *c, const char *op, const char *shape, double us, double bytes) {
    char floor[48] = "";
    if (c->copy_rate > 0)
        snprintf(floor, sizeof floor, "%8.2f x floor", us * c->copy_rate / bytes);
    printf("time   %-10s %-22s %-34s %10.2f us %10.3f MB %8.1f GB/s%s\n", c->level, op, shape, us,
           bytes / 1e6, bytes / us / 1e3, floor);
    fflush(stdout);
}

void report_tally(struct check *c, const struct tally *t, bool guards, double bound, const char *op,
                  const char *shape) {
    const char *torn = guards ? "" : ", guards broken or poison left";
    if (c->device)
        report(c, t->error <= bound && guards, op, shape, "relative error %.1e (max %.1e)%s",
               t->error, bound, torn);
    else
        report(c, t->differ == 0 && guards, op, shape, "%lld values differ (exact)%s",
               (long long)t->differ, torn);
}

bool check_has(struct check *c, const char *op, bool there) {
    if (there)
        return true;
    for (int i = 0; i < c->n_absent; i++)
        if (!strcmp(c->absent[i], op))
            return false;
    if (c->n_absent < (int)(sizeof c->absent / sizeof c->absent[0]))
        c->absent[c->n_absent++] = op;
    report(c, false, op, "", "absent");
    return false;
}

bool check_takes(struct check *c, const struct ops_needs *needs, const char *op) {
    struct err e = {0};
    int rc = exec_takes(c->exec, needs, &e);
    if (rc)
        report(c, rc == ERR_UNSUPPORTED && e.text[0], op, "refused", "%s", e.text);
    return rc == 0;
}

void buffers_open(struct buffers *r, struct check *c, struct exec *x) {
    *r = (struct buffers){.c = c, .x = x};
}

static struct buffer *add_item(struct buffers *r, const void *host, size_t bytes) {
    const struct ops *o = exec_ops(r->x);
    size_t all = bytes + 2 * GUARD;
    unsigned char *image = malloc(all), *base = o->alloc(r->x, all);
    if (!image || !base || r->n == (int)(sizeof r->items / sizeof r->items[0])) {
        fprintf(stderr, "no room for %zu bytes on %s\n", bytes, o->name);
        abort();
    }
    memset(image, GUARD_BYTE, all);
    if (host && bytes)
        memcpy(image + GUARD, host, bytes);
    else
        memset(image + GUARD, POISON_BYTE, bytes);
    o->upload(r->x, base, image, all);
    free(image);
    r->items[r->n] = (struct buffer){.base = base, .bytes = bytes};
    return &r->items[r->n++];
}

void *buffers_in(struct buffers *r, const void *host, size_t bytes) {
    struct buffer *t = add_item(r, host, bytes);
    t->kept = host;
    return t->base + GUARD;
}

void *buffers_io(struct buffers *r, void *host, size_t bytes) {
    struct buffer *t = add_item(r, host, bytes);
    t->back = host;
    return t->base + GUARD;
}

void *buffers_own(struct buffers *r, const void *host, size_t bytes) {
    return add_item(r, host, bytes)->base + GUARD;
}

void buffers_get(struct buffers *r, void *host, const void *device, size_t bytes) {
    exec_ops(r->x)->download(r->x, host, device, bytes);
}

void buffers_put(struct buffers *r, void *device, const void *host, size_t bytes) {
    exec_ops(r->x)->upload(r->x, device, host, bytes);
}

static bool item_whole(const struct buffer *t, const unsigned char *image) {
    const unsigned char *end = image + GUARD + t->bytes;
    bool whole = !t->kept || t->bytes == 0 || !memcmp(image + GUARD, t->kept, t->bytes);
    for (int i = 0; i < GUARD; i++)
        whole = whole && image[i] == GUARD_BYTE && end[i] == GUARD_BYTE;
    return whole;
}

void buffers_close(struct buffers *r) {
    const struct ops *o = exec_ops(r->x);
    for (int i = 0; i < r->n; i++) {
        struct buffer *t = &r->items[i];
        unsigned char *image = malloc(t->bytes + 2 * GUARD);
        if (!image)
            abort();
        o->download(r->x, image, t->base, t->bytes + 2 * GUARD);
        if (t->back && t->bytes)
            memcpy(t->back, image + GUARD, t->bytes);
        r->c->broken += !item_whole(t, image);
        o->free(r->x, t->base);
        free(image);
    }
    r->n = 0;
}

void read_act(struct exec *x, const struct act *a, int64_t n, int64_t k, float *out) {
    if (device_level(exec_ops(x)->name))
        device_read_act(x, a, n, k, out);
    else
        x->act_read(x, a, n, out);
}

double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

// Microseconds of a call on a device: marks around many, queued while copies keep it busy, so that
// the host's share of a call does not show.
static double time_queued(struct check *c, timed_fn *fn, void *arg) {
    enum { CALLS = 40 };
    const struct ops *o = exec_ops(c->exec);
    struct err e;
    double best = 1e30, until = now_us() + 40e3;
    int turn = 0;
    fn(arg, turn++);
    for (int run = 0; run < 3 || (now_us() < until && run < 50); run++) {
        exec_status(c->exec, &e);
        for (int i = 0; i < 4; i++)
            o->copy(c->exec, c->busy[i % 2], c->busy[1 - i % 2], BUSY_BYTES);
        c->exec->mark(c->exec, 0);
        for (int i = 0; i < CALLS; i++)
            fn(arg, turn++);
        c->exec->mark(c->exec, 1);
        double us = c->exec->between(c->exec, 0, 1) * 1000 / (double)CALLS;
        best = us < best ? us : best;
    }
    return best;
}

double time_call(struct check *c, timed_fn *fn, void *arg) {
    if (c->busy[0])
        return time_queued(c, fn, arg);
    struct err e;
    double best = 1e30, until = now_us() + 60e3;
    int turn = 0, calls = 1;
    fn(arg, turn++);
    exec_status(c->exec, &e);
    if (c->device)
        calls = 10;
    for (int run = 0; run < 3 || (now_us() < until && run < 200); run++) {
        double t = now_us();
        for (int i = 0; i < calls; i++)
            fn(arg, turn++);
        exec_status(c->exec, &e);
        t = (now_us() - t) / calls;
        best = t < best ? t : best;
    }
    return best;
}

struct copy_call {
    struct exec *x;
    unsigned char *to, *from;
    size_t bytes;
};

static void copy_turn(void *arg, int turn) {
    const struct copy_call *a = arg;
    exec_ops(a->x)->copy(a->x, turn % 2 ? a->to : a->from, turn % 2 ? a->from : a->to, a->bytes);
}

// What the memory gives: the floor of every op that must read and write.
static void measure_copy(struct check *c) {
    const struct ops *o = exec_ops(c->exec);
    struct copy_call a = {c->exec, NULL, NULL, c->device ? BUSY_BYTES : (size_t)64 << 20};
    a.to = o->alloc(c->exec, a.bytes);
    a.from = o->alloc(c->exec, a.bytes);
    if (a.to && a.from) {
        double us = time_call(c, copy_turn, &a);
        c->copy_rate = 2 * (double)a.bytes / us;
        report_time(c, "copy", "read and written", us, 2 * (double)a.bytes);
    }
    if (c->device && a.to && a.from) { // freed with the exec
        c->busy[0] = a.to;
        c->busy[1] = a.from;
        return;
    }
    o->free(c->exec, a.to);
    o->free(c->exec, a.from);
}

static void run(struct check *c, void (*part)(struct check *)) {
    if (part)
        part(c);
}

static void run_families(struct check *c, const struct opcheck_options *o) {
    struct err e;
    for (int i = 0; i < FAMILIES; i++) {
        const struct family *f = &families[i];
        if (o->only && strcmp(f->name, o->only) != 0)
            continue;
        if (o->timing) {
            run(c, f->time);
        } else {
            if (strcmp(c->level, "scalar"))
                run(c, f->level);
            run(c, f->rule);
            run(c, f->exact);
            report(c, c->broken == 0, "guards, inputs", f->name, "%d broken", c->broken);
            c->broken = 0;
        }
        if (exec_status(c->exec, &e)) {
            report(c, false, "device", f->name, "%s", e.text);
            return; // a fault stays
        }
    }
}

// The exec that rule E compares with: it may differ in all that must not change a bit.
static int open_other(struct check *c, struct err *e) {
    if (!c->device)
        return device_open(&c->other, c->level, 3, e);
    bool many = !strcmp(c->level, "cuda") || !strcmp(c->level, "cuda:wgmma");
    int rc = many ? device_open(&c->other, "cuda:mma", 0, e) : ERR_UNSUPPORTED;
    return rc ? device_open(&c->other, c->level, 0, e) : 0;
}

int opcheck_level(const char *level, const struct opcheck_options *o, int *passed, int *failed) {
    struct check c = {.level = level, .device = device_level(level), .brief = o->brief};
    struct err e;
    c.rng.state = o->seed ? o->seed : 20261121;
    int rc = device_open(&c.exec, level, o->threads, &e);
    if (rc) {
        printf("skip   %-10s %s\n", level, e.text);
        return rc;
    }
    rc = exec_create_cpu(&c.spec, "scalar", 1, &e);
    if (!rc)
        rc = open_other(&c, &e);
    if (!rc && o->timing)
        measure_copy(&c);
    if (!rc)
        run_families(&c, o);
    else
        printf("skip   %-10s %s\n", level, e.text);
    struct exec *all[] = {c.exec, c.spec, c.other};
    for (int i = 0; i < 3; i++)
        if (all[i])
            exec_destroy(all[i]);
    *passed += c.passed;
    *failed += c.failures;
    return rc;
}
