// SPDX-License-Identifier: Apache-2.0
// Profiles of experts: what was written is read, and one of another model, a damaged one, and one
// cut anywhere are reported by a sentence.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/session/learned.h"

static const struct expert_profile_subject SUBJECT = {3, 8, 0x1234567890ABCDEFu};

static void open_path(struct str *path) {
    char folder[] = "/tmp/coppice-profile-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char model[64];
    snprintf(model, sizeof model, "%s/m.gguf", folder);
    expert_profile_path(path, model);
    assert_non_null(strstr(path->data, "/m.gguf.spark"));
}

static void end_path(struct str *path) {
    unlink(path->data);
    *strrchr(path->data, '/') = 0;
    assert_int_equal(rmdir(path->data), 0); // and nothing else was left there
    str_fini(path);
}

static void contents_are_restored(void **state) {
    (void)state;
    struct str path = {0};
    struct err e = {0};
    uint32_t uses[24], *got = uses;
    for (uint32_t i = 0; i < 24; i++)
        uses[i] = i * 0x123456u;
    open_path(&path);
    assert_int_equal(expert_profile_read(&got, path.data, &SUBJECT, &e), 0);
    assert_null(got); // there is none yet
    assert_int_equal(expert_profile_write(uses, path.data, &SUBJECT, &e), 0);
    uses[5] = 77;
    assert_int_equal(expert_profile_write(uses, path.data, &SUBJECT, &e), 0);
    assert_int_equal(expert_profile_read(&got, path.data, &SUBJECT, &e), 0);
    assert_memory_equal(got, uses, sizeof uses);
    free(got);
    end_path(&path);
}

static void refuses(void **state) {
    (void)state;
    struct str path = {0}, text = {0};
    struct err e = {0};
    uint32_t uses[24] = {0}, *got;
    open_path(&path);
    assert_int_equal(expert_profile_write(uses, path.data, &SUBJECT, &e), 0);
    struct expert_profile_subject other = SUBJECT;
    other.model++;
    assert_int_equal(expert_profile_read(&got, path.data, &other, &e), ERR_MISMATCH);
    assert_non_null(strstr(e.text, "is of another model"));
    other = (struct expert_profile_subject){3, 16, SUBJECT.model};
    assert_int_equal(expert_profile_read(&got, path.data, &other, &e), ERR_MISMATCH);
    assert_non_null(strstr(e.text, "3 layers of 8 experts, and this one has 3 of 16"));
    assert_int_equal(file_read(&text, path.data, 4096, &e), 0);
    for (size_t n = 0; n < text.len; n++) {
        assert_int_equal(expert_profile_parse(&got, text.data, n, "p", &SUBJECT, &e), ERR_FORMAT);
        assert_null(got);
        text.data[n] ^= 4; // a bit anywhere
        assert_true(expert_profile_parse(&got, text.data, text.len, "p", &SUBJECT, &e) < 0);
        assert_null(got);
        text.data[n] ^= 4;
    }
    str_fini(&text);
    end_path(&path);
    assert_int_equal(expert_profile_write(uses, "/nonexistent/m.spark", &SUBJECT, &e), ERR_IO);
}

// Files that the program did not write, with a checksum that fits, and what is no file at all.
static void refuses_what_is_made_up(void **state) {
    (void)state;
    struct str path = {0};
    struct err e = {0};
    uint32_t uses[24] = {0}, *got;
    open_path(&path);
    uses[8] = INT32_MAX - 1;
    uses[15] = 1; // of one layer no more than that
    assert_int_equal(expert_profile_write(uses, path.data, &SUBJECT, &e), 0);
    assert_int_equal(expert_profile_read(&got, path.data, &SUBJECT, &e), 0);
    free(got);
    uses[9] = 1;
    assert_int_equal(expert_profile_write(uses, path.data, &SUBJECT, &e), 0);
    assert_int_equal(expert_profile_read(&got, path.data, &SUBJECT, &e), ERR_FORMAT);
    assert_null(got);
    assert_non_null(strstr(e.text, "has counts of uses that no run writes; remove it"));
    uses[9] = UINT32_MAX; // a sum of 32 bits would be small again
    uses[8] = 1;
    assert_int_equal(expert_profile_write(uses, path.data, &SUBJECT, &e), 0);
    assert_int_equal(expert_profile_read(&got, path.data, &SUBJECT, &e), ERR_FORMAT);
    unlink(path.data);
    assert_int_equal(mkfifo(path.data, 0600), 0);
    assert_int_equal(expert_profile_read(&got, path.data, &SUBJECT, &e),
                     ERR_FORMAT); // and does not wait
    assert_non_null(strstr(e.text, "no profile of experts"));
    unlink(path.data);
    assert_int_equal(mkdir(path.data, 0700), 0);
    assert_int_equal(expert_profile_read(&got, path.data, &SUBJECT, &e), ERR_FORMAT);
    assert_int_equal(rmdir(path.data), 0);
    end_path(&path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_are_restored),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_what_is_made_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
