// SPDX-License-Identifier: Apache-2.0
// The pair of `coppice daemon` and what it generates, texts that were kept, the scorer, and where
// lines and ids go; see daemon.h. A slot is a help and never a promise: what of its text agrees
// with a prompt need not be run again, and the rest is run. The scorer stays loaded until it is
// freed or another one is named.
#include "cli/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "base/vec.h"

enum { IDS_MAX = 1 << 24, LINE_MAX_BYTES = 2048, PIECE = 1024 };

static void print_line(struct daemon *d, const char *before, const char *text) {
    struct str line = {0};
    str_printf(&line, "%s%s\n", before, text);
    if (!d->rc)
        d->rc = cli_print(&line, &d->said);
    str_fini(&line);
}

void daemon_say(struct daemon *d, const char *fmt, ...) {
    char text[LINE_MAX_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    print_line(d, "", text);
}

void daemon_fail(struct daemon *d, const char *word, const char *fmt, ...) {
    char before[64], text[LINE_MAX_BYTES];
    struct err clean; // control characters and what is no UTF-8 are made harmless
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    err_set(&clean, 0, "%s", text);
    snprintf(before, sizeof before, "err %s: ", word);
    print_line(d, before, clean.text);
}

static void put_id(unsigned char *to, int32_t id) {
    uint32_t v = (uint32_t)id;
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(v >> (8 * i));
}

static int32_t get_id(const unsigned char *from) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v |= (uint32_t)from[i] << (8 * i);
    return (int32_t)v;
}

static int write_ids(int fd, const unsigned char *bytes, size_t n, struct err *e) {
    for (size_t at = 0; at < n;) {
        ssize_t wrote = write(fd, bytes + at, n - at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return err_set(e, ERR_IO, "cannot write to the stream of ids: %s", strerror(errno));
        at += (size_t)wrote;
    }
    return 0;
}

int daemon_emit(struct daemon *d, const int32_t *ids, int64_t n, struct err *e) {
    unsigned char bytes[4 * PIECE];
    int rc = 0;
    for (int64_t at = 0; at < n && d->stream >= 0 && !rc; at += PIECE) {
        int64_t m = min_i64(n - at, PIECE);
        for (int64_t i = 0; i < m; i++)
            put_id(bytes + 4 * i, ids[at + i]);
        rc = write_ids(d->stream, bytes, 4 * (size_t)m, e);
    }
    if (rc)
        d->stream = -1; // its reader is gone
    return rc;
}

void daemon_end_stream(struct daemon *d) {
    const int32_t end = -1;
    struct err e = {0};
    if (daemon_emit(d, &end, 1, &e))
        daemon_fail(d, "stream", "%s", e.text);
}

int daemon_read_ids(struct daemon_ids *out, const char *path, bool counted, struct err *e) {
    struct str bytes = {0};
    size_t head = counted ? 4 : 0;
    int rc = file_read(&bytes, path, 4 * (size_t)IDS_MAX + head, e);
    if (rc)
        goto out;
    const unsigned char *at = (const unsigned char *)bytes.data;
    int64_t n = bytes.len < head ? 0 : (int64_t)(bytes.len - head) / 4;
    if (n == 0 || (bytes.len - head) % 4 != 0)
        rc = err_set(e, ERR_FORMAT, "%s has %zu bytes, which is no list of 32-bit ids%s", path,
                     bytes.len, counted ? " after their count" : "");
    else if (counted && (uint32_t)get_id(at) != n)
        rc = err_set(e, ERR_FORMAT, "%s says that it holds %u ids and holds %lld", path,
                     (uint32_t)get_id(at), (long long)n);
    if (!rc)
        rc = vec_reserve(&out->at, &out->cap, n, sizeof *out->at, e);
    for (int64_t i = 0; i < n && !rc; i++)
        out->at[i] = get_id(at + head + 4 * i);
    out->n = rc ? 0 : n;
out:
    str_fini(&bytes);
    return rc;
}

int daemon_write_ids(const char *path, const struct daemon_ids *ids, struct err *e) {
    // The answers: for their owner only.
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    unsigned char bytes[4];
    if (!f) {
        err_set(e, ERR_IO, "cannot write %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return ERR_IO;
    }
    put_id(bytes, (int32_t)ids->n);
    bool ok = fwrite(bytes, 4, 1, f) == 1;
    for (int64_t i = 0; i < ids->n && ok; i++) {
        put_id(bytes, ids->at[i]);
        ok = fwrite(bytes, 4, 1, f) == 1;
    }
    if (fclose(f) == 0 && ok)
        return 0;
    int why = errno;
    remove(path);
    return err_set(e, ERR_IO, "cannot write %s: %s", path, strerror(why));
}

int daemon_slot_save(struct daemon *d, int slot, bool thin, struct err *e) {
    struct daemon_slot s = {.used = true, .thin = thin};
    if (!d->text)
        return err_set(e, ERR_STATE, "there is no text to keep; generate one first");
    int64_t n = transcript_len(d->text);
    int rc = vec_reserve(&s.ids.at, &s.ids.cap, n, sizeof *s.ids.at, e);
    if (!rc)
        rc = transcript_save(d->text, &s.state, e);
    if (rc) {
        free(s.ids.at);
        return rc;
    }
    memcpy(s.ids.at, transcript_tokens(d->text), (size_t)n * sizeof *s.ids.at);
    s.ids.n = n;
    daemon_slot_free(d, slot);
    d->slots[slot] = s;
    return 0;
}

void daemon_slot_free(struct daemon *d, int slot) {
    snapshot_destroy(d->slots[slot].state);
    free(d->slots[slot].ids.at);
    d->slots[slot] = (struct daemon_slot){0};
}

// States go, tokens stay.
static void drop_slot_states(struct daemon *d) {
    for (int i = 0; i < DAEMON_SLOTS; i++) {
        snapshot_destroy(d->slots[i].state);
        d->slots[i].state = NULL;
    }
}

static int64_t common_ids(const struct daemon_ids *a, const struct daemon_ids *b) {
    int64_t n = min_i64(a->n, b->n), i = 0;
    while (i < n && a->at[i] == b->at[i])
        i++;
    return i;
}

// The used slot of task->from whose state saves most of the prompt, and how many tokens of its text
// the prompt begins with; -1: none.
static int choose_slot(const struct daemon *d, const struct daemon_task *task, int64_t *common) {
    int64_t best_value = 0;
    int best = -1;
    *common = 0;
    for (int i = 0; i < task->n_from; i++) {
        const struct daemon_slot *s = &d->slots[task->from[i]];
        int64_t n = s->used && s->state ? common_ids(&s->ids, &task->prompt) : 0;
        n = n > 0 ? min_i64(n, snapshot_prompt(s->state)) : 0;
        // A state of more than that may have to go back further than it can.
        int64_t value = n > 0 && snapshot_ready(s->state) <= n ? 1 + snapshot_ready(s->state) : 0;
        if (value < best_value || (value == best_value && n <= *common))
            continue;
        best_value = value;
        *common = n;
        best = task->from[i];
    }
    return best;
}

int daemon_load_scorer(struct daemon *d, const char *path, struct err *e) {
    struct compression *k = &d->scorer;
    if (k->c && !strcmp(d->scorer_path.data, path))
        return 0;
    daemon_free_scorer(d);
    str_puts(&d->scorer_path, path);
    if (d->scorer_path.failed)
        return err_set(e, ERR_MEMORY, "no memory for a path");
    k->options = prefill_options_default();
    k->options.mode = PREFILL_ALWAYS;
    k->path = d->scorer_path.data;
    int rc = compression_scorer_options(&d->a->opt, &k->scorer, e);
    if (!rc)
        rc = compression_open(k, d->a, e);
    if (rc) {
        daemon_free_scorer(d);
        return rc;
    }
    k->park = d->options.park; // planned with the first one
    k->lend = d->options.lend;
    daemon_lend(d);
    return 0;
}

void daemon_lend(struct daemon *d) {
    static const struct compress_turns none = {0};
    if (d->scorer.c && d->s)
        compression_lend(&d->scorer, d->s);
    else if (d->scorer.c)
        compressor_turns(d->scorer.c, &none);
}

int daemon_compress(struct daemon *d, const char *path, const struct daemon_ids *prompt, int keep,
                    struct token_list *kept, double *ms, struct err *e) {
    struct compress_result r = {0};
    const struct compress_ids in = {prompt->at, prompt->n};
    int rc = daemon_load_scorer(d, path, e);
    if (rc)
        return rc;
    struct compress_options o = compress_options_default();
    o.continued = COMPRESS_ANEW; // the command is there to compress
    o.select.budget = SELECT_RATIO;
    o.select.keep = keep / 1e3;
    o.select.anchors = !options_flag(&d->a->opt, OPT_PREFILL_NO_ANCHORS);
    rc = compress_tokens(d->scorer.c, &in, &o, kept, &r, e);
    *ms = r.ms_encode + r.ms_score + r.ms_select;
    compress_result_fini(&r);
    return rc;
}

bool daemon_free_scorer(struct daemon *d) {
    bool loaded = d->scorer.c != NULL;
    compression_close(&d->scorer);
    str_fini(&d->scorer_path);
    return loaded;
}

int daemon_load(struct daemon *d, struct err *e) {
    if (d->s)
        return 0;
    int rc = session_open(&d->s, &d->options, e);
    if (!rc)
        daemon_lend(d);
    return rc;
}

void daemon_unload(struct daemon *d) {
    transcript_destroy(d->text);
    d->text = NULL;
    drop_slot_states(d);
    session_close(d->s);
    d->s = NULL;
    daemon_lend(d);
}

struct receiver {
    struct daemon *d;
    bool streams;
    int rc;
    struct err *e;
};

static int emit_tokens(void *arg, const int32_t *ids, int64_t n) {
    struct receiver *r = arg;
    if (r->streams && !r->rc)
        r->rc = daemon_emit(r->d, ids, n, r->e);
    return r->rc;
}

// A fresh text that begins with what the best slot has in common with the prompt.
static int begin_text(struct daemon *d, const struct daemon_task *task, int64_t *common,
                      struct err *e) {
    int from = choose_slot(d, task, common);
    transcript_destroy(d->text);
    d->text = NULL;
    int rc = transcript_create(&d->text, d->s, e);
    if (rc || from < 0)
        return rc;
    rc = transcript_restore(d->text, d->slots[from].state, e);
    return rc ? rc : transcript_cut(d->text, *common, e);
}

// Runs the first snap_at tokens and keeps them. *ms: what that took.
static int keep_text_begin(struct daemon *d, const struct daemon_task *task,
                           const struct request *r, double *ms, struct err *e) {
    struct request q = *r;
    struct reply y = {0};
    int64_t have = transcript_len(d->text);
    int rc = have > task->snap_at ? transcript_cut(d->text, task->snap_at, e) : 0;
    if (!rc && have < task->snap_at)
        rc = transcript_append(d->text, task->prompt.at + have, task->snap_at - have, e);
    q.max_tokens = 0;
    if (!rc)
        rc = transcript_generate(d->text, &q, &y, e);
    *ms = y.ms.prompt;
    reply_fini(&y);
    if (!rc)
        rc = daemon_slot_save(d, task->snap_slot, false, e);
    if (!rc)
        daemon_say(d, "[snap] inline slot=%d cur_pos=%lld", task->snap_slot,
                   (long long)task->snap_at);
    return rc;
}

static void fill_daemon_request(const struct daemon *d, const struct daemon_task *task,
                                struct request *r) {
    decode_request(d->a, d->s, r);
    if (d->draft_parked && r->how <= SPECULATE_CHAIN)
        r->how = speculate_auto(false);
    if (task->sampled)
        r->sample = task->sample;
    r->max_tokens = task->n_gen;
}

static int run_generate(struct daemon *d, const struct daemon_task *task, struct daemon_answer *out,
                        struct err *e) {
    struct receiver to = {d, task->streams, 0, e};
    struct request r;
    struct reply y = {0};
    int64_t common = 0;
    double begun = 0;
    fill_daemon_request(d, task, &r);
    int rc = begin_text(d, task, &common, e);
    out->reused = rc ? 0 : transcript_ready(d->text);
    if (!rc && task->snap_at > 0 && task->snap_at <= task->prompt.n)
        rc = keep_text_begin(d, task, &r, &begun, e);
    int64_t have = rc ? 0 : transcript_len(d->text);
    if (!rc)
        rc = transcript_append(d->text, task->prompt.at + have, task->prompt.n - have, e);
    r.tokens = emit_tokens;
    r.tokens_arg = &to;
    if (!rc)
        rc = transcript_generate(d->text, &r, &y, e);
    if (!rc && to.rc)
        rc = to.rc;
    out->prompt_s = (begun + y.ms.prompt) / 1e3;
    out->decode_s = (y.total_ms - y.ms.prompt) / 1e3;
    if (!rc)
        rc = vec_reserve(&out->ids.at, &out->ids.cap, y.n + 1, sizeof *out->ids.at, e);
    if (!rc && y.n)
        memcpy(out->ids.at, y.ids, (size_t)y.n * sizeof *y.ids);
    out->ids.n = rc ? 0 : y.n;
    reply_fini(&y);
    return rc;
}

int daemon_generate(struct daemon *d, const struct daemon_task *task, struct daemon_answer *out,
                    struct err *e) {
    struct request r;
    *out = (struct daemon_answer){0};
    fill_daemon_request(d, task, &r);
    r.prompt = task->prompt.at;
    r.n_prompt = task->prompt.n;
    int rc = request_check(&r, d->s, e);
    if (rc) // nothing has changed
        return rc;
    rc = run_generate(d, task, out, e);
    if (rc) { // what is left of a text that failed is nothing to go on from
        transcript_destroy(d->text);
        d->text = NULL;
    }
    return rc;
}
