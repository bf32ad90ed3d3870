// SPDX-License-Identifier: Apache-2.0
// Each write goes over the end of the JSON that the one before has left, and brings its own; the
// kernel takes it as one.
#include "engine/loop/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"

static const char BEGIN[] =
    "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
    "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"coppice\"}},"
    "\n"
    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"passes\"}}";
static const char END[] = "\n]}\n";

struct trace {
    int fd;
    char *path;
    off_t at;     // where END begins
    double start; // clock_ms
    struct str text;
    int failed; // errno of the write that failed; 0: none, -1: it has been reported
};

// Appends t->text after what there is.
static void flush_text(struct trace *t) {
    size_t n = t->text.len, done = 0;
    str_puts(&t->text, END);
    if (t->text.failed)
        t->failed = ENOMEM;
    while (!t->failed && done < t->text.len) {
        ssize_t some = pwrite(t->fd, t->text.data + done, t->text.len - done, t->at + (off_t)done);
        if (some > 0)
            done += (size_t)some;
        else if (some == 0 || errno != EINTR)
            t->failed = some == 0 ? EIO : errno;
    }
    t->at += (off_t)n;
    str_clear(&t->text);
}

int trace_open(struct trace **out, const char *path, struct err *e) {
    struct trace *t = calloc(1, sizeof *t);
    char *copy = strdup(path);
    if (!t || !copy) {
        free(t);
        free(copy);
        return err_set(e, ERR_MEMORY, "no memory for a trace");
    }
    t->path = copy;
    t->start = clock_ms();
    t->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int rc =
        t->fd < 0 ? err_set(e, ERR_IO, "cannot write a trace to %s: %s", path, strerror(errno)) : 0;
    if (!rc) {
        str_puts(&t->text, BEGIN);
        flush_text(t);
        rc = trace_failed(t, e);
    }
    if (rc) {
        trace_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

void trace_close(struct trace *t) {
    if (!t)
        return;
    if (t->fd >= 0)
        close(t->fd);
    str_fini(&t->text);
    free(t->path);
    free(t);
}

int trace_failed(struct trace *t, struct err *e) {
    if (!t || t->failed <= 0)
        return 0;
    err_set(e, ERR_IO, "the trace ends here, as %s cannot be written: %s", t->path,
            strerror(t->failed));
    t->failed = -1;
    return ERR_IO;
}

// Microseconds since the begin.
static long long trace_us(const struct trace *t, double ms) {
    return (long long)((ms - t->start) * 1e3);
}

void trace_pass(struct trace *t, const struct trace_pass *p) {
    if (!t || t->failed)
        return;
    str_printf(&t->text,
               ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":%lld,\"dur\":%lld,"
               "\"args\":{\"rows\":%lld,\"members\":%d,\"decoding\":%d,\"pieces\":%d,"
               "\"prompt_rows\":%lld,\"guesses\":%lld,\"tokens\":%lld,\"draft_ms\":%.3f,"
               "\"waiting\":%d,\"parked\":%d}}",
               p->decoding == 0           ? "prompt"
               : p->decoding < p->members ? "mixed"
               : p->guesses > 0           ? "verify"
                                          : "decode",
               trace_us(t, p->start), (long long)(p->ms * 1e3), (long long)p->rows, p->members,
               p->decoding, p->members - p->decoding, (long long)p->prompt, (long long)p->guesses,
               (long long)p->taken, p->draft_ms, p->waiting, p->parked);
    flush_text(t);
}

// One part of a request's life as a pair of asynchronous events, which may overlap others.
static void write_span(struct trace *t, int64_t number, const char *name, double from, double to) {
    const char *const fixed = "\"cat\":\"request\",\"pid\":1,\"tid\":2";
    str_printf(&t->text, ",\n{\"name\":\"%s\",\"ph\":\"b\",%s,\"id\":%lld,\"ts\":%lld}", name,
               fixed, (long long)number, trace_us(t, from));
    str_printf(&t->text, ",\n{\"name\":\"%s\",\"ph\":\"e\",%s,\"id\":%lld,\"ts\":%lld}", name,
               fixed, (long long)number, trace_us(t, to));
}

void trace_request(struct trace *t, const struct trace_request *r) {
    if (!t || t->failed)
        return;
    str_printf(&t->text,
               ",\n{\"name\":\"request\",\"ph\":\"b\",\"cat\":\"request\",\"pid\":1,\"tid\":2,"
               "\"id\":%lld,\"ts\":%lld,\"args\":{\"prompt\":%lld,\"cached\":%lld,\"tokens\":%lld,"
               "\"end\":\"%s\"}}",
               (long long)r->number, trace_us(t, r->submitted), (long long)r->prompt,
               (long long)r->cached, (long long)r->tokens, r->reason);
    write_span(t, r->number, "queue", r->submitted, r->joined);
    write_span(t, r->number, "prompt", r->joined, r->chosen);
    write_span(t, r->number, "tokens", r->chosen, r->ended);
    str_printf(&t->text,
               ",\n{\"name\":\"request\",\"ph\":\"e\",\"cat\":\"request\",\"pid\":1,\"tid\":2,"
               "\"id\":%lld,\"ts\":%lld}",
               (long long)r->number, trace_us(t, r->ended));
    flush_text(t);
}
