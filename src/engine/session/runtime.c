// SPDX-License-Identifier: Apache-2.0
// Opening devices, and the arithmetic of their memory budgets.
#include "engine/session/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/observe/importance.h"
#include "ops/observe/timing.h"

void size_text(char text[SIZE_TEXT], int64_t bytes) {
    if (bytes >= (int64_t)1 << 30)
        snprintf(text, SIZE_TEXT, "%.2f GiB", (double)bytes / (double)(1 << 30));
    else
        snprintf(text, SIZE_TEXT, "%.2f MiB", (double)bytes / (double)(1 << 20));
}

struct runtime_device {
    int number;              // CUDA's, or DEVICE_CPU_NUMBER
    struct device_options o; // as it was opened; no strings
    char cpu_level[16];
    struct exec *x;
    struct reservations reservations;
    struct runtime_device *next;
};

struct runtime {
    struct runtime_device *devices;
    struct runtime_device *chosen; // what "auto" has become
};

int64_t reservation_bytes(const struct reservation *c) {
    int64_t sum = 0;
    for (int i = 0; i < EXEC_ARENAS; i++)
        sum += c->bytes[i];
    return sum;
}

int64_t reservations_total(const struct reservations *c) {
    int64_t sum = c->own;
    for (const struct reservation *one = c->all; one; one = one->next)
        sum += reservation_bytes(one);
    return sum;
}

static void print_one(const struct reservation *c, struct str *out) {
    static const char *const names[EXEC_ARENAS] = {[ARENA_WORK] = "workspace",
                                                   [ARENA_WEIGHTS] = "weights",
                                                   [ARENA_STATES] = "states",
                                                   [ARENA_PAGES] = "pages",
                                                   [ARENA_SLOTS] = "slots of experts"};
    static const enum exec_arena order[EXEC_ARENAS] = {ARENA_WEIGHTS, ARENA_SLOTS, ARENA_WORK,
                                                       ARENA_STATES, ARENA_PAGES};
    char size[SIZE_TEXT];
    size_text(size, reservation_bytes(c));
    str_printf(out, "%s holds %s", c->who, size);
    const char *before = " (";
    for (int i = 0; i < EXEC_ARENAS; i++) {
        int64_t bytes = c->bytes[order[i]];
        if (!bytes)
            continue;
        size_text(size, bytes);
        str_printf(out, "%s%s %s", before, names[order[i]], size);
        before = ", ";
    }
    if (reservation_bytes(c))
        str_putc(out, ')');
}

// "a.gguf holds 1.20 GiB (weights 1.00 GiB, ...)" for each reservation; empty without any.
static void reservations_print(const struct reservations *c, struct str *out) {
    for (const struct reservation *one = c->all; one; one = one->next) {
        if (one != c->all)
            str_puts(out, "; ");
        print_one(one, out);
    }
}

void reservations_blame(const struct reservations *c, struct err *e) {
    struct str text = {0};
    reservations_print(c, &text);
    if (e && text.len && !text.failed) {
        char before[sizeof e->text];
        snprintf(before, sizeof before, "%s", e->text);
        err_set(e, e->code, "%s; %s", before, text.data);
    }
    str_fini(&text);
}

static int reservations_add(struct reservations *c, const struct reservation *what,
                            int64_t available, struct reservation **out, struct err *e) {
    char need[SIZE_TEXT], have[SIZE_TEXT];
    *out = NULL;
    if (available > 0 && reservation_bytes(what) > available) {
        size_text(need, reservation_bytes(what));
        size_text(have, available);
        err_set(e, ERR_MEMORY, "%s needs %s of memory and %s may be taken", what->who, need, have);
        reservations_blame(c, e);
        return ERR_MEMORY;
    }
    struct reservation *one = malloc(sizeof *one);
    if (!one)
        return err_set(e, ERR_MEMORY, "no memory for a reservation of memory");
    *one = *what;
    one->next = c->all;
    c->all = *out = one;
    return 0;
}

// what: who and bytes of it. available: bytes that are not reserved yet; 0: unknown, then nothing
// is refused. ERR_MEMORY with a sentence that says who holds what.
// NULL is allowed
static void reservations_release(struct reservations *c, struct reservation *one) {
    for (struct reservation **at = &c->all; one && *at; at = &(*at)->next) {
        if (*at != one)
            continue;
        *at = one->next;
        free(one);
        return;
    }
}

int runtime_create(struct runtime **out, struct err *e) {
    struct runtime *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_MEMORY, "no memory for a runtime");
    *out = r;
    return 0;
}

static void close_device(struct runtime_device *d) {
    while (d->reservations.all)
        reservations_release(&d->reservations, d->reservations.all);
    if (d->x)
        exec_destroy(d->x);
    free(d);
}

void runtime_destroy(struct runtime *r) {
    if (!r)
        return;
    for (struct runtime_device *d = r->devices, *next; d; d = next) {
        next = d->next;
        close_device(d);
    }
    free(r);
}

static void note_user(const struct device_options *o, const char *sentence) {
    if (sentence[0] && o->note)
        o->note(o->note_arg, sentence);
}

static bool open_level(const char *level) {
    return !level || !strcmp(level, "auto");
}

// Whether an open device is what these options request.
static int check_same(const struct runtime_device *d, const struct device_options *o,
                      struct err *e) {
    const struct device_options *is = &d->o;
    const char *other = NULL;
    bool gpu = d->number >= 0;
    if (!gpu && o->threads && o->threads != is->threads && o->threads != exec_threads(d->x))
        other = "another number of threads";
    if (!gpu && !open_level(o->cpu_level) && strcmp(o->cpu_level, d->cpu_level) != 0)
        other = "another --cpu-level";
    if (gpu && o->cuda_path != CUDA_PATH_AUTO && o->cuda_path != is->cuda_path)
        other = "another --cuda-path";
    if (gpu ? o->vram_limit && o->vram_limit != is->vram_limit
            : o->memory_limit && o->memory_limit != is->memory_limit)
        other = "another limit of its memory";
    if ((o->timing && !is->timing) || (o->importance && !is->importance))
        other = "no observer of its ops";
    if (other)
        return err_set(e, ERR_STATE, "%s is open with %s; leave that out, or open it so at first",
                       exec_label(d->x), other);
    return 0;
}

// The exec of a device, on a GPU. With `may_pass` one that cannot be opened is passed over: d->x
// stays NULL.
static int open_gpu(struct runtime_device *d, bool may_pass, struct err *e) {
    struct cuda_options o = {.device = d->number, .limit = d->o.vram_limit, .path = d->o.cuda_path};
    int rc = exec_create_cuda(&d->x, &o, e);
    if (!may_pass || (rc != ERR_DEVICE && rc != ERR_MEMORY))
        return rc;
    char sentence[sizeof e->text];
    snprintf(sentence, sizeof sentence, "%.400s (the CPU is used)", e->text);
    note_user(&d->o, sentence);
    return 0;
}

static int open_cpu(struct runtime_device *d, struct err *e) {
    d->number = DEVICE_CPU_NUMBER;
    return exec_create_cpu(&d->x, d->o.cpu_level, d->o.threads, e);
}

static struct runtime_device *find_device(const struct runtime *r, int number) {
    struct runtime_device *d = r->devices;
    while (d && d->number != number)
        d = d->next;
    return d;
}

static int prepare_observers(struct runtime_device *d, struct err *e) {
    int rc = d->o.timing ? timing_prepare(d->x, e) : 0;
    return !rc && d->o.importance ? importance_prepare(d->x, e) : rc;
}

// Opens device `number`; where that is a GPU that `may_pass`, it may become the CPU, which may be
// open already: then *out is that one.
static int open_new(struct runtime *r, int number, const struct device_options *o, bool may_pass,
                    struct runtime_device **out, struct err *e) {
    struct runtime_device *d = calloc(1, sizeof *d), *cpu = find_device(r, DEVICE_CPU_NUMBER);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for a device");
    d->o = *o;
    d->number = number;
    snprintf(d->cpu_level, sizeof d->cpu_level, "%s", o->cpu_level ? o->cpu_level : "auto");
    int rc = number >= 0 ? open_gpu(d, may_pass, e) : 0;
    if (!rc && !d->x && cpu) {
        close_device(d);
        *out = cpu;
        return check_same(cpu, o, e);
    }
    if (!rc && !d->x)
        rc = open_cpu(d, e);
    if (!rc)
        rc = prepare_observers(d, e);
    d->o.name = d->o.cpu_level = NULL; // the caller's
    d->o.note = NULL;
    if (rc) {
        close_device(d);
        return rc;
    }
    d->next = r->devices;
    r->devices = *out = d;
    return 0;
}

int runtime_device(struct runtime *r, const struct device_options *o, struct runtime_device **out,
                   struct err *e) {
    struct device_request request;
    struct device_choice choice = {.device = DEVICE_CPU_NUMBER};
    int rc = device_request_parse(&request, o->name, e);
    bool open = !rc && request.kind == DEVICE_AUTO;
    *out = open ? r->chosen : NULL;
    if (!rc && !*out && request.kind != DEVICE_CPU) {
        struct device_survey found;
        exec_survey_cuda(&found);
        rc = device_choose(&choice, &request, &found, e);
        if (!rc)
            note_user(o, choice.note);
    }
    if (rc)
        return rc;
    *out = *out ? *out : find_device(r, choice.device);
    rc = *out ? check_same(*out, o, e) : open_new(r, choice.device, o, open, out, e);
    if (rc)
        *out = NULL;
    else if (open)
        r->chosen = *out;
    return rc;
}

struct exec *runtime_exec(const struct runtime_device *d) {
    return d->x;
}

bool runtime_limited(const struct runtime_device *d) {
    return exec_is_device(d->x) || d->o.memory_limit > 0;
}

// What is held is part of what was reserved, so both count together; what other programs hold is
// neither free nor ours.
int64_t runtime_available(const struct runtime_device *d) {
    struct exec_memory m;
    int64_t max = d->o.memory_limit;
    if (!runtime_limited(d))
        return 0;
    if (exec_is_device(d->x)) {
        exec_memory_of(d->x, &m);
        max = m.free + m.used;
    }
    max -= reservations_total(&d->reservations);
    return max > 0 ? max : 1;
}

int runtime_reserve(struct runtime_device *d, const struct reservation *what, int64_t own,
                    int64_t available, struct reservation **out, struct err *e) {
    int64_t more = own > d->reservations.own ? own - d->reservations.own : 0;
    if (available > 0)
        available = available > more ? available - more : 1;
    int rc = reservations_add(&d->reservations, what, available, out, e);
    if (!rc)
        d->reservations.own += more;
    return rc;
}

void runtime_release(struct runtime_device *d, struct reservation *c) {
    if (!c)
        return;
    reservations_release(&d->reservations, c);
    exec_trim(d->x);
}

const struct reservations *runtime_reservations(const struct runtime_device *d) {
    return &d->reservations;
}
