// SPDX-License-Identifier: Apache-2.0
// What is said of drafts that load: nothing of those that fit, one sentence of each that seems to
// be for another version, chat template, tokenizer or depth; and drafts that do not fit are refused
// by the key or tensor that says so.
#include <stdio.h>
#include <unistd.h>

#include "base/str.h"
#include "engine/session/session.h"
#include "formats/gguf/gguf.h"
#include "support/tiny_gguf.h"
#include "unit/test.h"

static char target[64], draft[64], spare[64];
static struct str notes;

static void keep_note(void *arg, const char *sentence) {
    (void)arg;
    str_printf(&notes, "%s\n", sentence);
}

struct text {
    const char *key, *value;
};

// Copies the tokens with one of them changed.
static void put_other_tokens(struct gguf_writer *w, const struct gguf_kv *kv) {
    static const char *text[512];
    static size_t length[512];
    const unsigned char *at = kv->bytes;
    assert_true(kv->count <= 512);
    for (uint64_t i = 0; i < kv->count; i++)
        text[i] = gguf_array_str(&at, &length[i]);
    text[7] = "other";
    length[7] = 5;
    gguf_put_str_array(w, kv->key, text, length, kv->count);
}

// Writes a file again with these texts besides its metadata; other_tokens: with another token.
static void add_texts(const char *path, const struct text *texts, bool other_tokens) {
    struct gguf *g;
    struct gguf_writer *w;
    struct err e = {0};
    int rc = gguf_open(&g, path, &e) || gguf_writer_open(&w, spare, &e);
    for (size_t i = 0; !rc && i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        bool replaced = false;
        for (const struct text *t = texts; t && t->key; t++)
            replaced |= !strcmp(t->key, kv->key);
        if (other_tokens && !strcmp(kv->key, "tokenizer.ggml.tokens"))
            put_other_tokens(w, kv);
        else if (!replaced)
            gguf_put_kv(w, kv);
    }
    for (const struct text *t = texts; !rc && t && t->key; t++)
        gguf_put_str(w, t->key, t->value, strlen(t->value));
    for (size_t i = 0; !rc && i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        gguf_add_tensor(w, t->name, t->type, t->n_dims, t->ne);
    }
    for (size_t i = 0; !rc && i < gguf_tensor_count(g); i++)
        rc =
            gguf_write_data(w, gguf_tensor_at(g, i)->data, (size_t)gguf_tensor_at(g, i)->bytes, &e);
    rc = rc || gguf_writer_close(w, &e);
    gguf_close(g);
    if (rc || rename(spare, path))
        fail_msg("%s", e.text);
}

enum kind { DFLASH, SIDECAR };

static void write_pair(enum kind kind, const struct tiny_draft_shape *shape) {
    struct tiny_shape t = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&t);
    struct err e = {0};
    int rc = tiny_target_write(&t, target, &e);
    t.nextn = 1;
    if (!rc)
        rc = kind == SIDECAR ? tiny_sidecar_write(&t, draft, &e)
                             : tiny_draft_write(&t, shape ? shape : &d, draft, &e);
    if (rc)
        fail_msg("%s", e.text);
}

static int block_size;                        // that is given
static int64_t vocab_rows = DRAFT_VOCAB_AUTO; // the same

static int open_pair(struct err *e) {
    struct session_options o = session_options_default();
    struct session *s = NULL;
    o.dflash.block_size = block_size;
    o.draft_vocab.rows = vocab_rows;
    o.model = target;
    o.draft = draft;
    o.device = "cpu";
    o.threads = 1;
    o.target.max_ctx = 100;
    o.note = keep_note;
    str_clear(&notes);
    int rc = session_open(&s, &o, e);
    session_close(s);
    return rc;
}

static void said(const char *words) {
    struct err e = {0};
    if (open_pair(&e))
        fail_msg("%s", e.text);
    const char *line = notes.data ? notes.data : "";
    if (words ? !strstr(line, words) || strchr(line, '\n') != line + notes.len - 1 : *line)
        fail_msg("\"%s\", wanted \"%s\"", line, words ? words : "");
}

static void names(const char *key, const char *of_target, const char *of_draft, const char *words) {
    const struct text a[] = {{key, of_target}, {NULL, NULL}}, b[] = {{key, of_draft}, {NULL, NULL}};
    write_pair(DFLASH, NULL);
    add_texts(target, a, false);
    add_texts(draft, b, false);
    said(words);
}

static void says_versions(void **state) {
    (void)state;
    static const char name[] = "general.name", base[] = "general.base_model.0.name";
    names(name, "Qwen3.6 27B", "Qwen3.6-27B-DFlash-Q8_0", NULL);
    names(name, "Qwen3.6-27B", "Qwen3.5-27B-DFlash",
          "the draft is for Qwen 3.5 by its name and the target is Qwen 3.6");
    names(name, "Llama-3.3-70B-Instruct", "dflash-llama-3.1-70b", "llama 3.1");
    names(name, "GLM-4.7", "glm 4.7 mtp Q4_K_M", NULL);
    names(name, "Qwen3-Coder-30B-A3B", "qwen3_30b_block16", NULL);
    names(name, "gpt-oss-120b", "gpt-oss-20b-DFlash2", NULL); // sizes: widths tell them
    names(name, "target", "draft", NULL);
    names(base, "Qwen3.6-27B", "Qwen3.8-27B", "Qwen 3.8");
}

static void says_options(void **state) {
    (void)state;
    block_size = 4;
    write_pair(DFLASH, NULL);
    said(NULL);
    write_pair(SIDECAR, NULL);
    said("--draft-block is not used: it is for DFlash drafts, and this one is of another kind "
         "(mtp)");
    block_size = 0;
    vocab_rows = 16;
    said(NULL);
    write_pair(DFLASH, NULL);
    said("--draft-vocab is not used: a DFlash draft scores all tokens");
    vocab_rows = DRAFT_VOCAB_AUTO;
    said(NULL);
}

static void says_templates(void **state) {
    (void)state;
    static const char key[] = "tokenizer.chat_template";
    names(key, "{{ x }}", "{{ x }}", NULL);
    names(key, "{{ x }}", "{{ y }}",
          "another chat template than the target's (tokenizer.chat_template)");
}

// A DFlash draft with other tokens is refused; of a sidecar it is said.
static void says_tokens(void **state) {
    (void)state;
    struct err e = {0};
    write_pair(SIDECAR, NULL);
    said(NULL);
    add_texts(draft, NULL, true);
    said("token 7 of the draft's file is not the target's (tokenizer.ggml.tokens)");
    write_pair(DFLASH, NULL);
    said(NULL);
    add_texts(target, NULL, true);
    struct gguf *g = NULL;
    assert_int_equal(gguf_open(&g, draft, &e), 0);
    bool lists = gguf_find(g, "tokenizer.ggml.tokens");
    gguf_close(g);
    assert_true(!lists || open_pair(&e) == ERR_MISMATCH);
    assert_true(!lists || strstr(e.text, "token 7 of the draft (tokenizer.ggml.tokens)"));
}

static void says_taps(void **state) {
    (void)state;
    struct tiny_shape t = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&t);
    d.taps[1] = 1; // of 0 to 3
    write_pair(DFLASH, &d);
    said("the deepest layer that the draft reads (target_layers) is 1 of the target's 4");
}

static void refuse(const struct tiny_shape *t, const struct tiny_draft_shape *d,
                   const char *words) {
    struct tiny_shape own = tiny_shape_default();
    struct err e = {0};
    assert_int_equal(tiny_target_write(&own, target, &e), 0);
    assert_int_equal(tiny_draft_write(t, d, draft, &e), 0);
    assert_int_equal(open_pair(&e), ERR_MISMATCH);
    if (!strstr(e.text, words))
        fail_msg("\"%s\" lacks \"%s\"", e.text, words);
}

static void refuses_by_key(void **state) {
    (void)state;
    struct tiny_shape t = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&t);
    d.taps[1] = 4;
    refuse(&t, &d, "taps target layer 4 (target_layers) but the target has 4");
    d = tiny_draft_default(&t);
    t.dim = 128;
    refuse(&t, &d, "is 128 wide (embedding_length, hidden_size) but the target 64");
    t = tiny_shape_default();
    d.mask = 400;
    refuse(&t, &d, "mask token 400 (mask_token_id)");
}

static int set_up(void **state) {
    (void)state;
    int pid = (int)getpid();
    snprintf(target, sizeof target, "/tmp/coppice-hints-%d-t.gguf", pid);
    snprintf(draft, sizeof draft, "/tmp/coppice-hints-%d-d.gguf", pid);
    snprintf(spare, sizeof spare, "/tmp/coppice-hints-%d-s", pid);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unlink(target);
    unlink(draft);
    str_fini(&notes);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_versions),  cmocka_unit_test(says_options),
        cmocka_unit_test(says_templates), cmocka_unit_test(says_tokens),
        cmocka_unit_test(says_taps),      cmocka_unit_test(refuses_by_key),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
