// SPDX-License-Identifier: Apache-2.0
// What passes cost from one session to the next: a warm session begins with what a cold one has
// learnt, other models and codecs have files of their own, a damaged file is reported and made
// anew, and a folder that cannot be written is reported and no error. Replies are the same in all
// of them.
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/batch/batch.h"
#include "support/tiny_gguf.h"

struct fixture {
    char base[64], folder[96], target[96], draft[96];
    char note[600]; // the last one
    int notes;
};

static void take_note(void *arg, const char *sentence) {
    struct fixture *f = arg;
    snprintf(f->note, sizeof f->note, "%s", sentence);
    f->notes++;
}

static int setup(void **state) {
    static struct fixture f;
    struct tiny_shape t = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&t);
    f = (struct fixture){.base = "/tmp/coppice-prices-XXXXXX"};
    if (!mkdtemp(f.base))
        return -1;
    snprintf(f.folder, sizeof f.folder, "%s/deep/folder", f.base);
    snprintf(f.target, sizeof f.target, "%s/t.gguf", f.base);
    snprintf(f.draft, sizeof f.draft, "%s/d.gguf", f.base);
    *state = &f;
    return tiny_target_write(&t, f.target, NULL) || tiny_draft_write(&t, &d, f.draft, NULL);
}

static int teardown(void **state) {
    const struct fixture *f = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", f->base);
    return system(command);
}

static struct session *open_session(struct fixture *f, enum kv_codec_id codec, bool draft) {
    struct session_options o = session_options_default();
    struct session *s = NULL;
    struct err e = {0};
    o.device = "cpu";
    o.model = f->target;
    o.draft = draft ? f->draft : NULL;
    o.threads = 1;
    o.target.max_ctx = 200;
    o.target.codec_k = o.target.codec_v = codec;
    o.price_folder = f->folder;
    o.note = take_note;
    o.note_arg = f;
    assert_int_equal(session_open(&s, &o, &e), 0);
    return s;
}

// The hash of a reply, from a session that is closed then. warm: whether it knew prices at once.
static uint64_t reply_of(struct fixture *f, enum kv_codec_id codec, bool draft, bool *warm) {
    static const int32_t prompt[] = {104, 101, 108, 108, 111};
    struct session *s = open_session(f, codec, draft);
    struct request r;
    struct reply y;
    struct err e = {0};
    request_init(&r);
    r.prompt = prompt;
    r.n_prompt = 5;
    r.max_tokens = 30;
    r.ignore_eos = r.logit_hash = true;
    r.how = draft ? SPECULATE_TREE : SPECULATE_LOOKUP;
    *warm = price_ready(session_price(s));
    assert_int_equal(session_generate(s, &r, &y, &e), 0);
    uint64_t hash = y.hash;
    reply_fini(&y);
    session_close(s);
    return hash;
}

// The files of the folder; the path of the last one.
static int files(const struct fixture *f, char *path, size_t size) {
    int n = 0;
    DIR *dir = opendir(f->folder);
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (d->d_name[0] != '.') {
            snprintf(path, size, "%s/%s", f->folder, d->d_name);
            n++;
        }
    if (dir)
        closedir(dir);
    return n;
}

static void a_warm_session_begins_with_what_was_learnt(void **state) {
    struct fixture *f = *state;
    bool warm;
    char path[512];
    uint64_t cold = reply_of(f, KV_F16, true, &warm);
    assert_false(warm);
    assert_int_equal(files(f, path, sizeof path), 1);
    assert_true(reply_of(f, KV_F16, true, &warm) == cold);
    assert_true(warm);
    assert_int_equal(files(f, path, sizeof path), 1);
    assert_int_equal(f->notes, 0);
    // Another codec, and no draft, are other keys.
    reply_of(f, KV_Q8_0, true, &warm);
    assert_false(warm);
    reply_of(f, KV_F16, false, &warm);
    assert_false(warm);
    assert_int_equal(files(f, path, sizeof path), 3);
}

static void nothing_learnt_is_not_written(void **state) {
    struct fixture *f = *state;
    char path[512];
    session_close(open_session(f, KV_F32, true));
    assert_int_equal(files(f, path, sizeof path), 0);
}

static void a_damaged_file_is_made_anew(void **state) {
    struct fixture *f = *state;
    bool warm;
    char path[512];
    uint64_t cold = reply_of(f, KV_F16, true, &warm);
    assert_int_equal(files(f, path, sizeof path), 1);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"version\":", file);
    fclose(file);
    assert_true(reply_of(f, KV_F16, true, &warm) == cold);
    assert_false(warm);
    assert_int_equal(f->notes, 1);
    assert_non_null(strstr(f->note, "anew"));
    reply_of(f, KV_F16, true, &warm);
    assert_true(warm);
    assert_int_equal(f->notes, 1);
}

// What was of use last stays.
static void the_oldest_of_many_files_are_removed(void **state) {
    enum { LIMIT = 256 };
    struct fixture *f = *state;
    const struct timespec old[] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    bool warm;
    char path[512];
    reply_of(f, KV_F16, true, &warm);
    for (int i = 0; i < LIMIT + 10; i++) {
        snprintf(path, sizeof path, "%s/price-%016x.json", f->folder, (unsigned)i);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fclose(file);
        assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    }
    reply_of(f, KV_Q8_0, true, &warm);
    assert_int_equal(files(f, path, sizeof path), LIMIT);
    reply_of(f, KV_F16, true, &warm);
    assert_true(warm);
}

// A file where the folder should be: as for a folder that may not be written, also for root.
static void a_folder_that_cannot_be_made_is_no_error(void **state) {
    struct fixture *f = *state;
    bool warm;
    snprintf(f->folder, sizeof f->folder, "%s/t.gguf/x", f->base);
    reply_of(f, KV_F16, true, &warm);
    assert_false(warm);
    assert_int_equal(f->notes, 1);
    assert_non_null(strstr(f->note, "t.gguf"));
    assert_non_null(strstr(f->note, "not kept"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_warm_session_begins_with_what_was_learnt, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(nothing_learnt_is_not_written, setup, teardown),
        cmocka_unit_test_setup_teardown(the_oldest_of_many_files_are_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_damaged_file_is_made_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_cannot_be_made_is_no_error, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
