// SPDX-License-Identifier: Apache-2.0
// A GPU that fails in the middle of a request: memory that runs out between two tokens, and a
// kernel that reads where no memory is. The request must end with one sentence, the tokens shown
// before must be those of a good run, and a lack of memory must be over once there is some again.
// Usage: test_faults [TARGET DRAFT], from the folder of the repository.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/generate.h"

enum { NEW = 400, TROUBLE = 40, PIECES = 4096, NOTHING_TO_RUN_ON = 77 };

enum trouble { NONE, FULL, BROKEN };

// One request: what was shown, and when trouble comes.
struct show {
    struct session *s;
    enum trouble trouble;
    struct act *act;
    int32_t ids[NEW];
    int64_t n;
    bool done; // trouble has been made
    void *pieces[PIECES];
    int n_pieces;
};

static int passed, failed;

static bool is(bool ok, const char *what, const char *text) {
    passed += ok;
    failed += !ok;
    printf("%-6s faults: %s%s%s\n", ok ? "ok" : "FAIL", what, text[0] ? ": " : "", text);
    return ok;
}

// Takes all the memory that the session may still have.
static void fill(struct show *w, struct exec *x) {
    for (size_t bytes = 64 << 20; bytes >= 512; bytes /= 2) {
        void *p;
        while (w->n_pieces < PIECES && (p = exec_ops(x)->alloc(x, bytes)))
            w->pieces[w->n_pieces++] = p;
    }
}

static void empty(struct show *w, struct exec *x) {
    while (w->n_pieces)
        exec_ops(x)->free(x, w->pieces[--w->n_pieces]);
}

static int on_tokens(void *arg, const int32_t *ids, int64_t n) {
    struct show *w = arg;
    struct exec *x = model_exec(session_model(w->s));
    for (int64_t i = 0; i < n && w->n < NEW; i++)
        w->ids[w->n++] = ids[i];
    if (w->done || w->n < TROUBLE || w->trouble == NONE)
        return 0;
    w->done = true;
    if (w->trouble == FULL)
        fill(w, x);
    else
        exec_ops(x)->to_act(x, (const float *)4096, 4, 64, w->act);
    return 0;
}

// Runs a request into *w; its sentence is in e.
static int request(struct show *w, enum speculate how, struct err *e) {
    static const int32_t prompt[] = {11, 7, 300, 41, 5, 99, 1000, 12};
    struct request r;
    struct reply y;
    request_init(&r);
    r.prompt = prompt;
    r.n_prompt = sizeof prompt / sizeof *prompt;
    r.max_tokens = NEW;
    r.ignore_eos = true;
    r.how = how;
    r.tokens = on_tokens;
    r.tokens_arg = w;
    e->text[0] = 0;
    int rc = session_generate(w->s, &r, &y, e);
    bool same = y.n == w->n && !memcmp(y.ids, w->ids, (size_t)w->n * sizeof *w->ids);
    reply_fini(&y);
    return same ? rc : err_set(e, ERR_STATE, "the reply is not what was shown");
}

static bool begins(const struct show *all, const struct show *part) {
    return part->n <= all->n && !memcmp(part->ids, all->ids, (size_t)part->n * sizeof *part->ids);
}

static struct session *opened(char **files) {
    struct session_options o = session_options_default();
    struct session *s = NULL;
    struct err e = {0};
    o.model = files[0];
    o.draft = files[1];
    o.device = "cuda";
    o.vram_limit = (int64_t)1 << 30;
    is(!session_open(&s, &o, &e), "opening", e.text);
    return s;
}

static struct show *show_of(struct session *s, enum trouble trouble) {
    struct show *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    *w = (struct show){.s = s, .trouble = trouble};
    return w;
}

// In a session of its own, which has no pages left over from a request before.
static void memory_runs_out(char **files, const struct show *good, enum speculate how) {
    struct session *s = opened(files);
    if (!s)
        return;
    struct show *w = show_of(s, FULL), *again = show_of(s, NONE);
    struct err e = {0};
    int rc = request(w, how, &e);
    is(rc == ERR_MEMORY && strstr(e.text, "--max-ctx"), "memory runs out", e.text);
    is(w->n >= TROUBLE && w->n < NEW && begins(good, w), "what was shown before stays", "");
    empty(w, model_exec(session_model(s)));
    rc = request(again, how, &e);
    is(!rc && again->n == NEW && begins(good, again), "with memory again, the request runs",
       e.text);
    session_close(s);
    free(w);
    free(again);
}

static void a_kernel_fails(char **files, const struct show *good) {
    struct session *s = opened(files);
    if (!s)
        return;
    struct exec *x = model_exec(session_model(s));
    struct show *w = show_of(s, BROKEN), *again = show_of(s, NONE);
    struct err e = {0};
    if (is(!exec_ops(x)->act_create(x, 4, 64, &w->act, &e), "an activation", e.text)) {
        int rc = request(w, SPECULATE_TREE, &e);
        is(rc == ERR_DEVICE && strstr(e.text, "failed"), "a kernel fails", e.text);
        is(w->n >= TROUBLE && w->n < TROUBLE + 40 && begins(good, w), "nothing is shown after it",
           "");
        rc = request(again, SPECULATE_TREE, &e);
        is(rc == ERR_DEVICE && again->n == 0, "the next request says so too", "");
        exec_ops(x)->act_destroy(x, w->act);
    }
    session_close(s);
    free(w);
    free(again);
}

int main(int argc, char **argv) {
    char *bundled[] = {"models/coppice-tiny-q8_0.gguf", "models/coppice-tiny-dflash-q8_0.gguf"};
    char **files = argc > 2 ? argv + 1 : bundled;
    struct err e = {0};
    struct device_survey found;
    exec_survey_cuda(&found);
    if (found.n == 0) {
        printf("faults: no GPU (%s)\n", found.reason ? found.reason : "none");
        return NOTHING_TO_RUN_ON;
    }
    struct session *s = opened(files);
    struct show *good = show_of(s, NONE);
    if (s && is(!request(good, SPECULATE_TREE, &e) && good->n == NEW, "a good run", e.text)) {
        memory_runs_out(files, good, SPECULATE_OFF);
        memory_runs_out(files, good, SPECULATE_TREE);
        a_kernel_fails(files, good); // ends CUDA for this process
    }
    session_close(s);
    free(good);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
