// SPDX-License-Identifier: Apache-2.0
// Standard error in a thread of its own; see log_out.h. Callers append to a text, the thread takes
// it as a whole. The thread is abandoned where it still waits for a reader at the end.
#include "cli/log_out.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/pool.h"
#include "base/str.h"

enum { KEPT = 1 << 20, PATIENCE_MS = 500 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    struct str text; // said and not yet taken
    long dropped;    // pieces since the last one that was kept
    bool runs, writing, ends;
} out = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

// Writes all, or up to an error.
static void write_stderr(const char *text, size_t n) {
    while (n) {
        ssize_t some = write(STDERR_FILENO, text, n);
        struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
        if (some < 0 && errno != EINTR && errno != EAGAIN)
            return;
        if (some < 0) {
            poll(&p, 1, -1); // another program may have made it non-blocking
            continue;
        }
        text += some;
        n -= (size_t)some;
    }
}

static void *write_log_lines(void *arg) {
    (void)arg;
    pthread_mutex_lock(&out.lock);
    for (;;) {
        while (out.text.len == 0 && !out.ends)
            pthread_cond_wait(&out.changed, &out.lock);
        if (out.text.len == 0)
            break;
        struct str text = out.text;
        out.text = (struct str){0};
        out.writing = true;
        pthread_mutex_unlock(&out.lock);
        write_stderr(text.data, text.len);
        str_fini(&text);
        pthread_mutex_lock(&out.lock);
        out.writing = false;
        pthread_cond_broadcast(&out.changed);
    }
    pthread_mutex_unlock(&out.lock);
    return NULL;
}

int log_out_begin(struct err *e) {
    out.ends = false;
    out.runs = pool_thread_start(&out.thread, write_log_lines, NULL) == 0;
    return out.runs ? 0 : err_set(e, ERR_MEMORY, "the system gives no thread to the log");
}

void log_out_end(void) {
    struct timespec until;
    if (!out.runs)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += PATIENCE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&out.lock);
    out.ends = true;
    pthread_cond_broadcast(&out.changed);
    int late = 0;
    while ((out.text.len || out.writing) && !late)
        late = pthread_cond_timedwait(&out.changed, &out.lock, &until);
    out.runs = false;
    pthread_mutex_unlock(&out.lock);
    if (late)
        pthread_detach(out.thread);
    else
        pthread_join(out.thread, NULL);
}

void log_out_bytes(const char *text, size_t n) {
    pthread_mutex_lock(&out.lock);
    bool runs = out.runs;
    if (runs && out.text.len + n > KEPT) {
        out.dropped++;
    } else if (runs) {
        if (out.dropped)
            str_printf(&out.text, "coppice: %ld lines were dropped: standard error was not read\n",
                       out.dropped);
        out.dropped = 0;
        str_append(&out.text, text, n);
        if (out.text.failed)
            str_fini(&out.text);
        pthread_cond_broadcast(&out.changed);
    }
    pthread_mutex_unlock(&out.lock);
    if (!runs)
        fwrite(text, 1, n, stderr);
}

void log_out(const char *fmt, ...) {
    char text[4096];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n > 0)
        log_out_bytes(text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}
