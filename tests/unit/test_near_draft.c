// SPDX-License-Identifier: Apache-2.0
// Drafts that nobody named: the block in the target's own file, a file next to it, which of them is
// taken, what is said of those that are not, and that a session without the draft goes on as plain
// decoding does.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "engine/batch/batch.h"
#include "engine/session/near_draft.h"
#include "formats/gguf/gguf.h"
#include "support/tiny_gguf.h"
#include "unit/test.h"

enum { CONTEXT = 200, REPLY = 24 };

static char folder[] = "/tmp/coppice-near-XXXXXX";
static char target[64], beside[64], other[64], spare[64];
static struct str notes;

static void keep_note(void *arg, const char *sentence) {
    (void)arg;
    str_printf(&notes, "%s\n", sentence);
}

static struct tiny_shape shape_with(int blocks, uint64_t seed) {
    struct tiny_shape t = tiny_shape_default();
    t.nextn = blocks;
    t.seed = seed;
    return t;
}

static void write_target(const struct tiny_shape *t) {
    struct err e = {0};
    if (tiny_target_write(t, target, &e))
        fail_msg("%s", e.text);
}

static void write_sidecar(const struct tiny_shape *t, const char *path) {
    struct err e = {0};
    if (tiny_sidecar_write(t, path, &e))
        fail_msg("%s", e.text);
}

static void write_dflash(const char *path) {
    struct tiny_shape t = shape_with(0, 1);
    struct tiny_draft_shape d = tiny_draft_default(&t);
    struct err e = {0};
    if (tiny_draft_write(&t, &d, path, &e))
        fail_msg("%s", e.text);
}

// Writes the target again without a tensor.
static void drop_tensor(const char *name) {
    struct gguf *g;
    struct gguf_writer *w;
    struct err e = {0};
    int rc = gguf_open(&g, target, &e) || gguf_writer_open(&w, spare, &e);
    for (size_t i = 0; !rc && i < gguf_kv_count(g); i++)
        gguf_put_kv(w, gguf_kv_at(g, i));
    assert_non_null(gguf_tensor(g, name));
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; !rc && i < gguf_tensor_count(g); i++) {
            const struct tensor *t = gguf_tensor_at(g, i);
            if (strcmp(t->name, name) == 0)
                continue;
            if (pass)
                rc = gguf_write_data(w, t->data, (size_t)t->bytes, &e);
            else
                gguf_add_tensor(w, t->name, t->type, t->n_dims, t->ne);
        }
    rc = rc || gguf_writer_close(w, &e);
    gguf_close(g);
    if (rc || rename(spare, target))
        fail_msg("%s", e.text);
}

static struct session_options options(void) {
    struct session_options o = session_options_default();
    o.model = target;
    o.device = "cpu";
    o.threads = 1;
    o.target.max_ctx = CONTEXT;
    o.note = keep_note;
    return o;
}

static bool is_named(const char *path) {
    return strstr(path, "DFlash") != NULL;
}

// What is chosen: "block", a file's name, or "none". The notes are those of the choice.
static const char *chosen(bool look_beside) {
    static char name[64];
    struct session_options o = options();
    struct near_drafts d = {.o = &o, .by_name = is_named};
    const char *draft = NULL;
    struct str path = {0};
    struct err e = {0};
    str_clear(&notes);
    int rc = near_draft_in_target(&d, &e);
    d.quiet = d.of_target;
    if (!rc && look_beside)
        rc = near_draft_beside(&d, &e);
    d.quiet = false;
    if (rc || near_draft_choose(&d, &path, &draft, &e))
        fail_msg("%s", e.text);
    if (draft == DRAFT_OF_TARGET)
        snprintf(name, sizeof name, "block");
    else
        snprintf(name, sizeof name, "%s", draft ? strrchr(draft, '/') + 1 : "none");
    str_fini(&path);
    return name;
}

static void said(const char *words) {
    if (!notes.data || !strstr(notes.data, words))
        fail_msg("\"%s\" was not said: \"%s\"", words, notes.data ? notes.data : "");
}

static void said_nothing(void) {
    if (notes.len)
        fail_msg("said \"%s\"", notes.data);
}

struct answer {
    int32_t ids[REPLY];
    uint64_t hash;
    bool draft;
};

// The answer of a session with these options, guessing where it has a draft.
static struct answer answer_of(const struct session_options *o) {
    static const int32_t prompt[] = {104, 101, 108, 108, 111, 32, 119, 111};
    struct session *s = NULL;
    struct err e = {0};
    struct reply r = {0};
    struct answer a = {.hash = 0};
    struct request q;
    request_init(&q);
    q.prompt = prompt;
    q.n_prompt = sizeof prompt / sizeof *prompt;
    q.max_tokens = REPLY;
    q.ignore_eos = true;
    q.logit_hash = true;
    if (session_open(&s, o, &e))
        fail_msg("%s", e.text);
    a.draft = session_draft(s);
    q.how = a.draft ? SPECULATE_TREE : SPECULATE_OFF;
    q.auto_budget = false;
    q.tree.budget = 6;
    if (session_generate(s, &q, &r, &e))
        fail_msg("%s", e.text);
    assert_int_equal(r.n, REPLY);
    memcpy(a.ids, r.ids, sizeof a.ids);
    a.hash = r.hash;
    reply_fini(&r);
    session_close(s);
    return a;
}

static void same_answer(const struct answer *a, const struct answer *b) {
    assert_memory_equal(a->ids, b->ids, sizeof a->ids);
    assert_int_equal(a->hash, b->hash);
}

static void clear_folder(void) {
    unlink(target);
    unlink(beside);
    unlink(other);
    unlink(spare);
}

static void takes_the_block(void **state) {
    (void)state;
    const struct tiny_shape t = shape_with(1, 1);
    clear_folder();
    write_target(&t);
    assert_string_equal(chosen(true), "block");
    said("guessing with the block of target.gguf that predicts further tokens\n");
    struct session_options o = options();
    struct answer plain = answer_of(&o);
    assert_false(plain.draft);
    o.draft = DRAFT_OF_TARGET;
    o.draft_optional = true;
    struct answer guessed = answer_of(&o);
    assert_true(guessed.draft);
    same_answer(&plain, &guessed);
    write_dflash(beside); // which would fit, too
    assert_string_equal(chosen(true), "block");
    said("to guess with the draft ");
    said("beside.gguf, name it with -d");
    assert_string_equal(chosen(false), "block");
}

// A target whose block lacks a tensor, or whose metadata counts a block that is not there.
static void leaves_a_damaged_block(void **state) {
    (void)state;
    const struct tiny_shape t = shape_with(1, 1), bare = shape_with(0, 1);
    clear_folder();
    write_target(&bare);
    struct session_options o = options();
    struct answer plain = answer_of(&o);
    write_target(&t);
    drop_tensor("blk.4.nextn.hnorm.weight");
    assert_string_equal(chosen(true), "none");
    said("the block of target.gguf that predicts further tokens is not used: ");
    said("blk.4.nextn.hnorm.weight");
    o.draft = DRAFT_OF_TARGET; // as if nobody had looked
    struct session *s = NULL;
    struct err e = {0};
    assert_int_not_equal(session_open(&s, &o, &e), 0);
    assert_non_null(strstr(e.text, "blk.4.nextn.hnorm.weight"));
    o.draft_optional = true;
    str_clear(&notes);
    struct answer left = answer_of(&o);
    said("the draft is left out: ");
    said("blk.4.nextn.hnorm.weight");
    assert_false(left.draft);
    same_answer(&plain, &left);
    write_sidecar(&t, beside); // and one that is whole
    assert_string_equal(chosen(true), "beside.gguf");
    write_target(&t);
    drop_tensor("blk.4.nextn.eh_proj.weight"); // the rest of a block has no place in a model
    assert_string_equal(chosen(false), "none");
    said_nothing();
}

// A file that cannot be read and is a draft by its name, as one that has not come whole, is said;
// another may be anything.
static void says_what_is_cut(void **state) {
    (void)state;
    static const char *const names[] = {"M-DFlash-Q8_0.gguf", "M.gguf"};
    const struct tiny_shape none = shape_with(0, 1);
    char path[128];
    struct stat size;
    clear_folder();
    write_target(&none);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%.*s%s", (int)(strrchr(target, '/') + 1 - target),
                       target, names[i]);
        write_dflash(path);
        assert_int_equal(stat(path, &size), 0);
        assert_int_equal(truncate(path, size.st_size / 2), 0);
        assert_string_equal(chosen(true), "none");
        if (i == 0) {
            said(names[i]);
            said("a draft that lies next to the target is not used: ");
        } else {
            said_nothing();
        }
        unlink(path);
    }
}

// A list of tokens that somebody named and that is wrong ends it; no draft is left out for that.
static void refuses_wrong_lists(void **state) {
    (void)state;
    const struct tiny_shape t = shape_with(1, 1), none = shape_with(0, 1);
    struct session_options o = options();
    struct near_drafts d = {.o = &o};
    struct err e = {0};
    clear_folder();
    write_target(&t);
    o.draft_vocab = (struct draft_vocab_options){.list = "/no/such/list"};
    str_clear(&notes);
    assert_int_equal(near_draft_in_target(&d, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "/no/such/list"));
    write_target(&none);
    write_sidecar(&t, beside);
    assert_int_equal(near_draft_in_target(&d, &e), 0);
    const char *draft = target;
    struct str path = {0};
    d.n = 1;
    d.path[0] = strdup(other); // as if it had been looked at first
    assert_int_equal(near_draft_beside(&d, &e), ERR_USAGE);
    assert_int_equal(near_draft_choose(&d, &path, &draft, &e), 0);
    assert_null(draft);
    said_nothing();
}

// Of a target that cannot be loaded nothing is said of drafts next to it.
static void blames_no_draft(void **state) {
    (void)state;
    const struct tiny_shape t = shape_with(1, 1);
    clear_folder();
    write_sidecar(&t, target);
    write_dflash(beside);
    assert_string_equal(chosen(true), "none");
    said_nothing();
}

static void takes_a_sidecar(void **state) {
    (void)state;
    const struct tiny_shape t = shape_with(0, 2), block = shape_with(1, 2);
    clear_folder();
    write_target(&t);
    assert_string_equal(chosen(true), "none");
    said_nothing();
    struct session_options o = options();
    struct answer plain = answer_of(&o);
    write_sidecar(&block, beside);
    assert_string_equal(chosen(true), "beside.gguf");
    said("beside.gguf, which lies next to the target");
    assert_string_equal(chosen(false), "none");
    o.draft = beside;
    struct answer guessed = answer_of(&o);
    assert_true(guessed.draft);
    same_answer(&plain, &guessed);
    write_dflash(other);
    assert_string_equal(chosen(true), "none");
    said("several drafts fit, among them ");
}

// Sidecars of another width are named; those of other models are not.
static void names_what_does_not_fit(void **state) {
    (void)state;
    const struct tiny_shape t = shape_with(0, 2);
    struct tiny_shape wide = shape_with(1, 3), plain = tiny_shape_form(TINY_FORM_GLM);
    wide.dim = 128;
    plain.nextn = 1;
    clear_folder();
    write_target(&t);
    write_sidecar(&wide, beside);
    assert_string_equal(chosen(true), "none");
    said("beside.gguf lies next to the target and is not used: ");
    said("embedding_length");
    write_sidecar(&plain, beside);
    assert_string_equal(chosen(true), "none");
    said_nothing();
}

// A draft that finds no memory beside the target is left out; one that was named is an error.
static void leaves_it_out_for_memory(void **state) {
    (void)state;
    const struct tiny_shape t = shape_with(1, 1);
    struct memory_plan without, with;
    struct session *s = NULL;
    struct err e = {0};
    clear_folder();
    write_target(&t);
    struct session_options o = options();
    assert_int_equal(session_measure(&o, &without, &e), 0);
    o.draft = DRAFT_OF_TARGET;
    assert_int_equal(session_measure(&o, &with, &e), 0);
    assert_true(plan_total(&with) > plan_total(&without) + 4096);
    o.target.memory_limit = plan_total(&without) + 1024;
    assert_int_equal(session_open(&s, &o, &e), ERR_MEMORY);
    o.draft_optional = true;
    str_clear(&notes);
    struct answer left = answer_of(&o);
    assert_false(left.draft);
    said("the draft is left out: ");
    o.target.memory_limit =
        1024; // where the target is what does not fit, its sentence is the error
    str_clear(&notes);
    assert_int_equal(session_open(&s, &o, &e), ERR_MEMORY);
    said_nothing();
}

static int set_up(void **state) {
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(target, sizeof target, "%s/target.gguf", folder);
    snprintf(beside, sizeof beside, "%s/beside.gguf", folder);
    snprintf(other, sizeof other, "%s/other.gguf", folder);
    snprintf(spare, sizeof spare, "%s/spare", folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    clear_folder();
    str_fini(&notes);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_block),         cmocka_unit_test(leaves_a_damaged_block),
        cmocka_unit_test(takes_a_sidecar),         cmocka_unit_test(blames_no_draft),
        cmocka_unit_test(says_what_is_cut),        cmocka_unit_test(refuses_wrong_lists),
        cmocka_unit_test(names_what_does_not_fit), cmocka_unit_test(leaves_it_out_for_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
