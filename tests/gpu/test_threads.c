// SPDX-License-Identifier: Apache-2.0
// Models and threads: loading in one thread and generating in another; two models on one GPU in two
// threads; on a machine with two GPUs two models on two of them, in one thread taking turns within
// a request, and in two threads. Tokens and logit hashes must be those of one model alone. Usage:
// test_threads [TARGET DRAFT], from the folder of the repository.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/batch/batch.h"
#include "ops/exec.h"

enum { NEW = 60, NOTHING_TO_RUN_ON = 77 };

struct run {
    char **files;
    const char *device;
    struct session *s;
    struct run *other; // a request of which runs within this one's, token by token
    int32_t ids[NEW];
    int64_t n;
    uint64_t hash;
    int rc;
    struct err e;
};

static int passed, failed;

static bool is(bool ok, const char *what, const char *text) {
    passed += ok;
    failed += !ok;
    printf("%-6s threads: %s%s%s\n", ok ? "ok" : "FAIL", what, text[0] ? ": " : "", text);
    return ok;
}

static void *open_it(void *arg) {
    struct run *w = arg;
    struct session_options o = session_options_default();
    o.model = w->files[0];
    o.draft = w->files[1];
    o.device = w->device;
    o.vram_limit = (int64_t)1 << 30;
    o.target.max_ctx = 4096;
    w->rc = session_open(&w->s, &o, &w->e);
    return NULL;
}

static void *close_it(void *arg) {
    struct run *w = arg;
    session_close(w->s);
    w->s = NULL;
    return NULL;
}

static void *generate(void *arg);

static int on_tokens(void *arg, const int32_t *ids, int64_t n) {
    struct run *w = arg;
    (void)ids;
    (void)n;
    if (w->other)
        generate(w->other);
    return 0;
}

static void *generate(void *arg) {
    struct run *w = arg;
    int32_t prompt[150];
    struct request r;
    struct reply y;
    for (int i = 0; i < 150; i++)
        prompt[i] = 11 + i * 37 % 700;
    request_init(&r);
    r.prompt = prompt;
    r.n_prompt = 150;
    r.max_tokens = NEW;
    r.ignore_eos = r.logit_hash = true;
    r.how = SPECULATE_TREE;
    r.tokens = on_tokens;
    r.tokens_arg = w;
    w->rc = session_generate(w->s, &r, &y, &w->e);
    w->n = y.n < NEW ? y.n : NEW;
    if (w->n)
        memcpy(w->ids, y.ids, (size_t)w->n * sizeof *w->ids);
    w->hash = y.hash;
    reply_fini(&y);
    return NULL;
}

static void *all_of_it(void *arg) {
    struct run *w = arg;
    open_it(w);
    for (int i = 0; i < 6 && !w->rc; i++)
        generate(w);
    struct session *s = w->s;
    w->s = NULL;
    session_close(s);
    return NULL;
}

static void in_thread(void *(*fn)(void *), struct run *w) {
    pthread_t t;
    if (pthread_create(&t, NULL, fn, w))
        abort();
    pthread_join(t, NULL);
}

static void in_two_threads(struct run *a, struct run *b) {
    pthread_t t;
    if (pthread_create(&t, NULL, all_of_it, a))
        abort();
    all_of_it(b);
    pthread_join(t, NULL);
}

static bool same(const struct run *a, const struct run *b) {
    return !a->rc && !b->rc && a->n == NEW && b->n == NEW && a->hash == b->hash &&
           !memcmp(a->ids, b->ids, sizeof a->ids);
}

// What it costs that every op makes its device the current one.
static void print_cost(struct session *s) {
    enum { TIMES = 200000 };
    struct exec *x = model_exec(session_model(s));
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < TIMES; i++)
        exec_ops(x)->free(x, NULL);
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("  an op's entry: %.0f ns\n",
           ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / TIMES);
}

static void one_gpu(char **files, struct run *alone) {
    struct run a = {.files = files, .device = "cuda:0"}, b = a;
    in_thread(open_it, &a);
    if (is(!a.rc, "opening in a thread that ends", a.e.text)) {
        generate(&a);
        is(same(alone, &a), "loading in one thread, generating in another", a.e.text);
        in_thread(generate, &a);
        is(same(alone, &a), "generating in a third", a.e.text);
        in_thread(close_it, &a);
    }
    in_two_threads(&a, &b);
    is(same(alone, &a) && same(alone, &b), "two models on one GPU in two threads",
       a.rc ? a.e.text : b.e.text);
}

static void two_gpus(char **files, const struct run *alone) {
    struct run a = {.files = files, .device = "cuda:0"}, b = {.files = files, .device = "cuda:1"};
    open_it(&a);
    open_it(&b);
    if (is(!a.rc && !b.rc, "opening two GPUs", a.rc ? a.e.text : b.e.text)) {
        generate(&a); // the newest that was opened is the other one
        is(same(alone, &a), "the first of two GPUs", a.e.text);
        generate(&b);
        is(same(alone, &b), "the second of two GPUs", b.e.text);
        a.other = &b;
        generate(&a);
        is(same(alone, &a) && same(alone, &b), "two GPUs taking turns in one thread",
           a.rc ? a.e.text : b.e.text);
        a.other = NULL;
    }
    close_it(&a); // while the other one is current
    close_it(&b);
    in_two_threads(&a, &b);
    is(same(alone, &a) && same(alone, &b), "two GPUs in two threads", a.rc ? a.e.text : b.e.text);
}

int main(int argc, char **argv) {
    char *bundled[] = {"models/coppice-tiny-q8_0.gguf", "models/coppice-tiny-dflash-q8_0.gguf"};
    char **files = argc > 2 ? argv + 1 : bundled;
    struct device_survey found;
    exec_survey_cuda(&found);
    if (found.n == 0) {
        printf("threads: no GPU (%s)\n", found.reason ? found.reason : "none");
        return NOTHING_TO_RUN_ON;
    }
    struct run alone = {.files = files, .device = "cuda:0"};
    open_it(&alone);
    if (is(!alone.rc, "opening", alone.e.text)) {
        generate(&alone);
        is(same(&alone, &alone), "one model alone", alone.e.text);
        print_cost(alone.s);
        close_it(&alone);
        one_gpu(files, &alone);
        if (found.n > 1)
            two_gpus(files, &alone);
        else
            printf("skip   threads: two GPUs (there is one)\n");
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
