// SPDX-License-Identifier: Apache-2.0
// Names of models on the Hub: what is one and what is a path, the types that names of files say,
// which files a name means, and names that lead out of a folder.
#include "test.h"

#include "cli/hub/names.h"

static void tells_names_from_paths(void **state) {
    (void)state;
    static const char *const names[] = {"Qwen/Qwen3-4B-GGUF",
                                        "Qwen/Qwen3-4B-GGUF:Q4_K_M",
                                        "a/b.c@v1.0:x/y-00001-of-00002.gguf",
                                        "hf.co/a/b:Q8_0",
                                        "https://huggingface.co/a/b",
                                        "https://huggingface.co/a/b/blob/main/x/y.gguf"};
    static const char *const paths[] = {
        "model.gguf", "models/t.gguf", "./a/b", "/a/b",  "a/b/c", "a",
        "../a/b",     "a/../b",        "a/",    "~/a/b", "a//b",  ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(hub_name_like(names[i]));
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        assert_false(hub_name_like(paths[i]));
}

static void expect_name(const char *text, const char *repo, const char *revision,
                        const char *want) {
    struct hub_name n;
    assert_int_equal(hub_name_read(&n, text, NULL), 0);
    assert_string_equal(n.repo, repo);
    assert_string_equal(n.revision, revision);
    assert_string_equal(n.want, want);
}

static void reads_names(void **state) {
    (void)state;
    struct hub_name n;
    struct err e;
    expect_name("a/b", "a/b", "main", "");
    expect_name("a/b:Q4_K_M", "a/b", "main", "Q4_K_M");
    expect_name("a/b@v1:x/y.gguf", "a/b", "v1", "x/y.gguf");
    expect_name("hf.co/a/b:q8_0", "a/b", "main", "q8_0");
    expect_name("https://huggingface.co/a/b/resolve/main/d/f.gguf?download=true", "a/b", "main",
                "d/f.gguf");
    expect_name("https://huggingface.co/a/b/tree/v2", "a/b", "v2", "");
    static const char *const bad[] = {"a/b:", "a/b@", "a/b@../x", "a/b@/x:y", "a/b:x\ty", "a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(hub_name_read(&n, bad[i], &e), ERR_USAGE);
        assert_non_null(strstr(e.text, "is no name of a model"));
    }
}

static void reads_labels(void **state) {
    (void)state;
    static const char *const rows[][2] = {{"Qwen3-4B-Q4_K_M.gguf", "Q4_K_M"},
                                          {"x/llama-3.q8_0.gguf", "Q8_0"},
                                          {"M-UD-Q4_K_XL-00001-of-00003.gguf", "UD-Q4_K_XL"},
                                          {"gpt-oss-20b-mxfp4.gguf", "MXFP4"},
                                          {"M-IQ2_XXS.gguf", "IQ2_XXS"},
                                          {"M-BF16.gguf", "BF16"},
                                          {"F16.gguf", "F16"},
                                          {"Qwen3-4B.gguf", ""},
                                          {"M-Q4_K_M-imat.gguf", ""},
                                          {"M-UD-.gguf", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char label[HUB_LABEL_BYTES];
        hub_label(rows[i][0], label);
        assert_string_equal(label, rows[i][1]);
    }
}

static const char hash[] = "0123456789012345678901234567890123456789";

static void put_files(struct hub_files *f, const char *const *names, size_t n) {
    *f = (struct hub_files){0};
    for (size_t i = 0; i < n; i++)
        assert_int_equal(hub_files_add(f, names[i], hash, 1, NULL), 0);
}

// Names of what was chosen, or a part of the sentence.
static void expect_choice(const struct hub_files *f, const char *name, const char *first, int n) {
    struct hub_name wanted;
    struct hub_choice c;
    struct err e = {0};
    assert_int_equal(hub_name_read(&wanted, name, &e), 0);
    int rc = hub_choose(f, &wanted, &c, &e);
    if (n == 0) {
        assert_int_equal(rc, ERR_MISMATCH);
        if (!strstr(e.text, first))
            fail_msg("%s", e.text);
        return;
    }
    assert_int_equal(rc, 0);
    assert_int_equal(c.n, n);
    assert_string_equal(f->at[c.at[0]].name, first);
}

static void chooses_files(void **state) {
    (void)state;
    static const char *const names[] = {"README.md",
                                        "M-BF16-00002-of-00002.gguf",
                                        "M-BF16-00001-of-00002.gguf",
                                        "M-Q4_K_M.gguf",
                                        "M-Q4_K_S.gguf",
                                        "M-UD-Q4_K_XL.gguf",
                                        "M-Q8_0.gguf",
                                        "M-dflash-Q8_0.gguf",
                                        "mmproj-F16.gguf",
                                        "q6/M-Q6_K-imat.gguf",
                                        "M-IQ3_M-00001-of-00002.gguf"};
    struct hub_files f;
    struct hub_choice c;
    put_files(&f, names, sizeof names / sizeof *names);
    expect_choice(&f, "a/b", "M-Q4_K_M.gguf", 1);
    expect_choice(&f, "a/b:q8_0", "M-Q8_0.gguf", 1);
    expect_choice(&f, "a/b:Q4_K_XL", "M-UD-Q4_K_XL.gguf", 1);
    expect_choice(&f, "a/b:BF16", "M-BF16-00001-of-00002.gguf", 2);
    expect_choice(&f, "a/b:M-BF16.gguf", "M-BF16-00001-of-00002.gguf", 2);
    expect_choice(&f, "a/b:Q6_K", "q6/M-Q6_K-imat.gguf", 1);
    expect_choice(&f, "a/b:M-Q6_K-imat.gguf", "q6/M-Q6_K-imat.gguf", 1);
    expect_choice(&f, "a/b:M-dflash-Q8_0.gguf", "M-dflash-Q8_0.gguf", 1);
    expect_choice(&f, "a/b:Q4_K", "a/b has no Q4_K; it has BF16, Q4_K_M", 0);
    expect_choice(&f, "a/b:IQ3_M", "part 2 of 2 of M-IQ3_M-00001-of-00002.gguf is missing", 0);
    hub_choose_draft(&f, true, &c);
    assert_int_equal(c.n, 1);
    assert_string_equal(f.at[c.at[0]].name, "M-dflash-Q8_0.gguf");
    hub_files_fini(&f);
}

// A prediction block in a file of its own is a draft, not a model.
static void takes_sidecars_for_drafts(void **state) {
    (void)state;
    static const char *const names[] = {"M-Q4_K_M.gguf", "mtp-M-BF16.gguf", "mtp-M-Q8_0.gguf"};
    struct hub_files f;
    struct hub_choice c;
    put_files(&f, names, sizeof names / sizeof *names);
    expect_choice(&f, "a/b", "M-Q4_K_M.gguf", 1);
    hub_choose_draft(&f, true, &c);
    assert_int_equal(c.n, 1);
    assert_string_equal(f.at[c.at[0]].name, "mtp-M-Q8_0.gguf");
    assert_true(hub_is_draft("x/mtp-M-BF16.gguf") && !hub_is_draft("M-MTP-BF16.gguf"));
    hub_files_fini(&f);
}

static void refuses_hostile_files(void **state) {
    (void)state;
    static const char *const names[] = {"../a.gguf",  "/a.gguf",   "a/../../b.gguf", "a//b.gguf",
                                        "a/./b.gguf", "a\\b.gguf", "a\nb.gguf",      "..",
                                        "a/",         ""};
    struct hub_files f;
    put_files(&f, names, sizeof names / sizeof *names);
    assert_int_equal(f.n, 0);
    assert_int_equal(hub_files_add(&f, "a.gguf", "../../etc", 1, NULL), 0);
    assert_string_equal(f.at[0].etag, "");
    hub_files_fini(&f);
}

static void knows_drafts(void **state) {
    (void)state;
    struct hub_name n;
    assert_true(hub_draft_name("bartowski/Qwen_Qwen3-4B-GGUF", 0, &n));
    assert_string_equal(n.repo, "z-lab/Qwen3-4B-DFlash-b16");
    assert_true(hub_draft_name("Qwen/Qwen3-4B-GGUF", 1, &n));
    assert_string_equal(n.repo, "Qwen/Qwen3-4B-DFlash");
    assert_true(hub_draft_name("Qwen/Qwen3-4B-GGUF", 2, &n));
    assert_string_equal(n.repo, "Qwen/Qwen3-4B-DFlash-GGUF");
    assert_false(hub_draft_name("Qwen/Qwen3-4B-GGUF", 3, &n));
    assert_true(hub_draft_name("a/Qwen3-40B-GGUF", 0, &n)); // another model
    assert_string_equal(n.repo, "a/Qwen3-40B-DFlash");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_names_from_paths),
        cmocka_unit_test(reads_names),
        cmocka_unit_test(reads_labels),
        cmocka_unit_test(chooses_files),
        cmocka_unit_test(takes_sidecars_for_drafts),
        cmocka_unit_test(refuses_hostile_files),
        cmocka_unit_test(knows_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
