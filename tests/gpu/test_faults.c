// SPDX-License-Identifier: Apache-2.0
// A GPU that fails in the middle of a request: memory that runs out between two tokens, each
// allocation and each launch or copy of passes failing once, and a kernel that reads where no
// memory is. The request must end with one sentence, the tokens shown before must be those of a
// good run, a lack of memory must be over once there is some again, and a caller that goes on with
// the same text or the same sequence gets plain decoding's tokens or is refused. Usage: test_faults
// [TARGET DRAFT], from the folder of the repository.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/batch/batch.h"
#include "engine/batch/transcript.h"
#include "ops/gpu/runtime/cuda.h"

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

// Takes all the memory that the session may still have, in its own slabs too.
static void fill(struct show *w, struct exec *x) {
    for (size_t bytes = 64 << 20; bytes >= 512; bytes /= 2) {
        for (int arena = 0; arena < EXEC_ARENAS; arena++) {
            void *p;
            while (w->n_pieces < PIECES && (p = exec_alloc(x, (enum exec_arena)arena, bytes)))
                w->pieces[w->n_pieces++] = p;
        }
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

// Texts over a part of the good run: fixed beginnings that fail, and go on.
enum { HELD = 40, FIRST = 4, AFTER = 5 };

struct text {
    struct session *s;
    int32_t ids[HELD + FIRST + AFTER + 1]; // of plain decoding
};

static int go_on(struct transcript *t, int64_t n, enum speculate how) {
    struct request r;
    struct reply y;
    struct err e;
    request_init(&r);
    r.max_tokens = n;
    r.ignore_eos = true;
    r.how = how;
    r.tree.budget = 8;
    int rc = transcript_generate(t, &r, &y, &e);
    reply_fini(&y);
    return rc;
}

static bool as_plain(const struct text *w, const struct transcript *t) {
    int64_t n = transcript_len(t);
    return n <= HELD + FIRST + AFTER &&
           !memcmp(transcript_tokens(t), w->ids, (size_t)n * sizeof *w->ids);
}

// The same sequence again, as a caller does who took no notice: all its tokens, then new ones.
static bool sequence_goes_on(struct text *w, struct sequence *seq) {
    struct request r;
    struct reply y;
    struct err e;
    int64_t n = sequence_len(seq) + 1;
    request_init(&r);
    r.prompt = w->ids;
    r.n_prompt = n < HELD ? HELD : n;
    r.max_tokens = AFTER;
    r.ignore_eos = true;
    r.in_place = seq;
    int rc = session_generate(w->s, &r, &y, &e);
    int64_t known = HELD + FIRST + AFTER - r.n_prompt, max = y.n < known ? y.n : known;
    bool same = !memcmp(y.ids, w->ids + r.n_prompt, (size_t)max * sizeof *y.ids);
    bool good = rc ? rc == ERR_STATE : y.n == AFTER && same;
    reply_fini(&y);
    return good;
}

struct sum {
    int hit, failed, wrong;
};

// Lets the n-th call of *left fail while a text of `begin` run tokens goes on. False: it did not
// come to that.
static bool one_fault(struct text *w, struct sum *sum, int64_t *left, int64_t n, int64_t begin,
                      enum speculate how) {
    struct transcript *t = NULL, *fork = NULL;
    struct err e;
    bool ok = !transcript_create(&t, w->s, &e) && !transcript_append(t, w->ids, HELD, &e);
    if (begin)
        ok = ok && !go_on(t, begin, SPECULATE_OFF) && !transcript_fork(t, &fork, &e);
    *left = n;
    int rc = go_on(t, FIRST - begin, how);
    bool hit = *left == 0;
    *left = 0;
    ok = ok && as_plain(w, t) && (rc == 0 || rc == ERR_MEMORY);
    int64_t more = HELD + FIRST + AFTER - transcript_len(t);
    ok = ok && !go_on(t, more, SPECULATE_OFF) && as_plain(w, t);
    if (fork)
        ok = ok && !go_on(fork, 2, SPECULATE_OFF) && as_plain(w, fork);
    sum->hit += hit;
    sum->failed += rc != 0;
    sum->wrong += !ok;
    transcript_destroy(t);
    transcript_destroy(fork);
    return hit;
}

// The same with a sequence, which is used again whatever happened.
static bool one_fault_in_place(struct text *w, struct sum *sum, int64_t *left, int64_t n) {
    struct sequence *seq = NULL;
    struct request r;
    struct reply y;
    struct err e;
    bool ok = !session_prefill(w->s, w->ids, HELD - 8, &seq, &e);
    request_init(&r);
    r.prompt = w->ids;
    r.n_prompt = HELD;
    r.max_tokens = FIRST;
    r.ignore_eos = true;
    r.how = SPECULATE_TREE;
    r.in_place = seq;
    *left = n;
    int rc = session_generate(w->s, &r, &y, &e);
    bool hit = *left == 0;
    *left = 0;
    ok = ok && (!y.n || !memcmp(y.ids, w->ids + HELD, (size_t)y.n * sizeof *y.ids));
    ok = ok && (rc == 0 || rc == ERR_MEMORY) && sequence_goes_on(w, seq);
    sum->hit += hit;
    sum->failed += rc != 0;
    sum->wrong += !ok;
    reply_fini(&y);
    sequence_destroy(seq);
    return hit;
}

static void each_fault(struct text *w, bool queue) {
    static const struct {
        const char *what;
        int64_t begin; // tokens before; 0: the prompt fails
        enum speculate how;
    } cases[] = {{"a prompt and its steps", 0, SPECULATE_TREE},
                 {"plain steps", 1, SPECULATE_OFF},
                 {"tree steps", 1, SPECULATE_TREE}};
    struct gpu *g = gpu_of(model_exec(session_model(w->s)));
    int64_t *left = queue ? &g->fail_queue : &g->fail_alloc;
    char text[96];
    for (size_t i = 0; i <= sizeof cases / sizeof *cases; i++) {
        bool in_place = i == sizeof cases / sizeof *cases;
        struct sum sum = {0};
        int64_t n = 1;
        while (in_place ? one_fault_in_place(w, &sum, left, n)
                        : one_fault(w, &sum, left, n, cases[i].begin, cases[i].how))
            n += n < 400 ? 1 : 7;
        snprintf(text, sizeof text, "%d faults, %d errors, %d wrong", sum.hit, sum.failed,
                 sum.wrong);
        printf("  each %s of %s: %s\n", queue ? "launch and copy" : "allocation",
               in_place ? "a sequence" : cases[i].what, text);
        is(sum.wrong == 0 && (!queue || sum.failed > 50), "each fault ends well", text);
    }
}

// What is reserved when a session is opened is enough for whatever runs in it.
static void faults_everywhere(char **files) {
    struct session *s = opened(files);
    struct text w = {.s = s};
    struct err e = {0};
    struct transcript *t = NULL;
    if (!s)
        return;
    struct gpu *g = gpu_of(model_exec(session_model(s)));
    size_t scratch = g->scratch_bytes;
    int64_t tickets = g->n_tickets, rows = g->row_state_rows;
    for (int i = 0; i < HELD; i++)
        w.ids[i] = 11 + i * 37 % 700;
    bool ok = !transcript_create(&t, s, &e) && !transcript_append(t, w.ids, HELD, &e) &&
              !go_on(t, FIRST + AFTER, SPECULATE_OFF);
    if (is(ok, "a good text", e.text)) {
        memcpy(w.ids, transcript_tokens(t), (HELD + FIRST + AFTER) * sizeof *w.ids);
        each_fault(&w, false);
        each_fault(&w, true);
    }
    transcript_destroy(t);
    is(scratch > 0 && g->scratch_bytes == scratch && g->n_tickets == tickets &&
           g->row_state_rows == rows,
       "no op has asked for more than was reserved", "");
    session_close(s);
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
        faults_everywhere(files);
        a_kernel_fails(files, good); // ends CUDA for this process
    }
    session_close(s);
    free(good);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
