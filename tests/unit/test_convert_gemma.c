// SPDX-License-Identifier: Apache-2.0
// A folder of Gemma 4 as its authors publish them (tools/oracle/gemma_fixtures.py): the tokenizer's
// keys are those of the established converter, its ids those of `tokenizers`, the chat template's
// text that of jinja2; the file loads, and folders with one thing wrong are refused.
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json/json.h"
#include "formats/gguf/gguf.h"
#include "models/model.h"
#include "text/chat/chat.h"
#include "text/chat/read.h"
#include "unit/hf_folder.h"
#include "unit/test.h"

#define FOLDER SOURCE_ROOT "/tests/fixtures/convert/gemma4/"

static struct str read_text(const char *name) {
    char path[256];
    struct str s = {0};
    struct err e = {0};
    snprintf(path, sizeof path, FOLDER "%s", name);
    if (file_read(&s, path, 1 << 20, &e))
        fail_msg("%s", e.text);
    return s;
}

static struct json *read_json(const char *name) {
    struct str s = read_text(name);
    struct json *v = NULL;
    struct err e = {0};
    if (json_parse(&v, s.data, s.len, &e))
        fail_msg("%s: %s", name, e.text);
    str_fini(&s);
    return v;
}

static struct gguf *converted(void) {
    struct convert_options o = hf_options("F32", NULL);
    struct gguf *g = NULL;
    struct err e = {0};
    if (convert_hf(FOLDER, hf_out, &o, &e) || gguf_open(&g, hf_out, &e))
        fail_msg("%s", e.text);
    return g;
}

static void same_texts(const struct gguf *g, const char *key, const struct json *want) {
    const struct gguf_kv *kv = gguf_find(g, key);
    assert_true(kv && kv->elem == GGUF_STRING && kv->count == json_len(want) && kv->count > 100);
    const unsigned char *at = kv->bytes;
    for (size_t i = 0; i < kv->count; i++) {
        size_t n = 0, k = 0;
        const char *s = gguf_array_str(&at, &n), *w = json_str(json_at(want, i), &k);
        if (n != k || memcmp(s, w, n))
            fail_msg("%s[%zu] is '%.*s', not '%s'", key, i, (int)n, s, w);
    }
}

static void same_numbers(const struct gguf *g, const char *key, int kind, const struct json *want) {
    const struct gguf_kv *kv = gguf_find(g, key);
    assert_true(kv && kv->elem == kind && kv->count == json_len(want));
    for (size_t i = 0; i < kv->count; i++)
        if (gguf_array_float(kv, i) != json_num(json_at(want, i), 1e9))
            fail_msg("%s[%zu] is %g", key, i, gguf_array_float(kv, i));
}

static void keys_are_the_established_ones(void **state) {
    (void)state;
    static const char *const ids[][2] = {
        {"bos", "bos"}, {"eos", "eos"}, {"unk", "unknown"}, {"pad", "padding"}, {"mask", "mask"}};
    struct gguf *g = converted();
    struct json *want = read_json("expected.json");
    struct err e = {0};
    bool yes = true;
    same_texts(g, "tokenizer.ggml.tokens", json_get(want, "tokens"));
    same_texts(g, "tokenizer.ggml.merges", json_get(want, "merges"));
    same_numbers(g, "tokenizer.ggml.scores", GGUF_F32, json_get(want, "scores"));
    same_numbers(g, "tokenizer.ggml.token_type", GGUF_I32, json_get(want, "token_type"));
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        char key[64];
        int64_t id;
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ids[i][1]);
        assert_int_equal(gguf_get_int(g, key, 0, 1 << 20, -1, &id, &e), 0);
        assert_int_equal(id, json_int(json_get(json_get(want, "ids"), ids[i][0]), -2));
    }
    assert_int_equal(gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", true, &yes, &e), 0);
    assert_false(yes);
    assert_int_equal(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", false, &yes, &e), 0);
    assert_true(yes);
    assert_null(gguf_find(g, "tokenizer.ggml.pre"));
    json_free(want);
    gguf_close(g);
}

static void same_ids(const struct token_list *have, const struct json *want, const char *text) {
    bool same = have->count == json_len(want);
    for (size_t i = 0; same && i < have->count; i++)
        same = have->ids[i] == json_int(json_at(want, i), -1);
    if (!same)
        fail_msg("other ids for \"%s\"", text);
}

static int check_line(const struct tokenizer *t, const char *line, size_t n) {
    struct json *row = NULL;
    struct token_list ids = {0};
    struct str back = {0};
    struct err e = {0};
    size_t k = 0;
    if (json_parse(&row, line, n, &e))
        fail_msg("%s", e.text);
    const char *text = json_str(json_get(row, "text"), &k);
    if (tokenizer_encode(t, text, k, true, &ids, &e))
        fail_msg("%s", e.text);
    same_ids(&ids, json_get(row, "ids"), text);
    for (size_t i = 0; i < ids.count; i++)
        tokenizer_decode(t, ids.ids[i], true, &back);
    if (!strstr(text, "\xE2\x96\x81")) // which decodes to a blank
        assert_true(back.len == k && !memcmp(back.data ? back.data : "", text, k));
    token_list_fini(&ids);
    str_fini(&back);
    json_free(row);
    return 1;
}

static void ids_are_those_of_tokenizers(void **state) {
    (void)state;
    struct gguf *g = converted();
    struct str lines = read_text("ids.jsonl");
    struct tokenizer *t = NULL;
    struct err e = {0};
    int texts = 0;
    if (tokenizer_create(&t, g, &e))
        fail_msg("%s", e.text);
    for (const char *at = lines.data, *end; (end = strchr(at, '\n')); at = end + 1)
        texts += check_line(t, at, (size_t)(end - at));
    assert_true(texts > 100);
    static const char *const ends[] = {"<eos>", "<turn|>", "<|tool_response>"};
    int eog = 0;
    for (int i = 0; i < tokenizer_size(t); i++)
        eog += tokenizer_is_eog(t, i);
    assert_int_equal(eog, 3);
    for (size_t i = 0; i < 3; i++)
        assert_true(tokenizer_is_eog(t, tokenizer_find(t, ends[i], strlen(ends[i]))));
    tokenizer_destroy(t);
    str_fini(&lines);
    gguf_close(g);
}

static void chats_as_transformers_do(void **state) {
    (void)state;
    struct gguf *g = converted();
    struct json *want = read_json("expected.json");
    const struct json *chat = json_get(want, "chat");
    struct conversation said = {0};
    const struct chat_input in = {.said = &said, .add_generation_prompt = true};
    char place[CONVERSATION_PLACE];
    struct tokenizer *t = NULL;
    struct chat_template *form = NULL;
    struct chat_text x = {0};
    struct token_list ids = {0};
    struct err e = {0};
    if (tokenizer_create(&t, g, &e) || chat_template_of_gguf(&form, g, t, &e) ||
        conversation_read(&said, json_get(chat, "messages"), false, place, &e) ||
        chat_render(form, &in, &x, &e) || chat_encode(t, &x, &ids, &e))
        fail_msg("%s", e.text);
    assert_string_equal(x.text.data, json_str(json_get(chat, "text"), NULL));
    same_ids(&ids, json_get(chat, "ids"), x.text.data);
    token_list_fini(&ids);
    chat_text_fini(&x);
    conversation_fini(&said);
    chat_template_free(form);
    tokenizer_destroy(t);
    json_free(want);
    gguf_close(g);
}

static void the_file_loads(void **state) {
    (void)state;
    struct model_options o = model_options_default();
    struct model_plan plan;
    struct model_params p;
    struct err e = {0};
    struct gguf *g = converted();
    if (model_plan(&plan, &p, NULL, g, &o, &e))
        fail_msg("%s", e.text);
    gguf_close(g);
}

// In tokenizer.json or config.json; what the sentence says.
static const struct {
    const char *file, *from, *to, *part;
} bad[] = {
    {"tokenizer.json", "\"BPE\"", "\"Unigram\"", "not BPE"},
    {"tokenizer.json", "\"Replace\"", "\"Prepend\"", "normaliser"},
    {"tokenizer.json", "\"content\": \"\xE2\x96\x81\"", "\"content\": \"_\"", "normaliser"},
    {"tokenizer.json", "\"Split\"", "\"Whitespace\"", "pre-tokenizer"},
    {"tokenizer.json", "\"ignore_merges\": false", "\"ignore_merges\": true", "ignore_merges"},
    {"tokenizer.json", "<0x7F>", "<0x7f>", "each byte"},
    {"tokenizer.json", "\"content\": \"<mask>\"", "\"content\": \"<ma sk>\"", "blank in it"},
    {"tokenizer.json", "        \"\\n\\n\\n\\n\\n\",\n        \"\\n\"",
     "        \"\\n\\n\\n\\n\\n\",\n        \"\\n\\n\"", "merge 0"},
    {"tokenizer.json", "\"<unk>\": 3", "\"<unk>\": 4", "id 4"},
    {"config.json", "\"gelu_pytorch_tanh\"", "\"silu\"", "hidden_activation"},
    {"config.json", "\"proportional\"", "\"yarn\"", "rope_parameters"},
    {"config.json", "\"sliding_window\": 64, ", "", "'sliding_window'"},
    {"config.json", "\"hidden_size\": 32", "\"hidden_size\": 48", "config.json implies"},
    {"config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "layer_types"},
};

static void write_folder(const char *file, const char *from, const char *to) {
    static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct str s = read_text(names[i]);
        bool edited = !strcmp(names[i], file);
        hf_write_edited(hf_target, names[i], s.data, edited ? from : NULL, to);
        str_fini(&s);
    }
}

static void refuses_what_is_wrong(void **state) {
    (void)state;
    char link[96];
    struct convert_options o = hf_options("F32", NULL);
    snprintf(link, sizeof link, "%s/model.safetensors", hf_target);
    assert_int_equal(symlink(FOLDER "model.safetensors", link), 0);
    unlink(hf_out);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = {0};
        write_folder(bad[i].file, bad[i].from, bad[i].to);
        if (!convert_hf(hf_target, hf_out, &o, &e) || !strstr(e.text, bad[i].part))
            fail_msg("\"%s\", wanted \"%s\"", e.text, bad[i].part);
        assert_int_equal(access(hf_out, F_OK), -1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_the_established_ones),
        cmocka_unit_test(ids_are_those_of_tokenizers),
        cmocka_unit_test(chats_as_transformers_do),
        cmocka_unit_test(the_file_loads),
        cmocka_unit_test(refuses_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, hf_set_up, hf_tear_down);
}
