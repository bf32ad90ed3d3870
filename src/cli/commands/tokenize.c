// SPDX-License-Identifier: Apache-2.0
// `coppice tokenize` and `detokenize`: text to token ids, as `generate` would see them, and back,
// by the metadata of a model's file alone. Text is written as it is, but for the blank that
// SentencePiece puts before a text; a newline is added only for a terminal, so that a pipe gets
// every byte and nothing else.
#include <unistd.h>

#include "cli/models/decode.h"

// The tokenizer of the file that -m names; ERR_USAGE without -m. Errors name the file.
static int open_tokenizer(const struct cli_args *a, struct tokenizer **out, struct err *e) {
    struct gguf *g;
    *out = NULL;
    int rc = cli_need(a, OPT_MODEL, e);
    if (rc)
        return rc;
    const char *path = options_str(&a->opt, OPT_MODEL);
    rc = gguf_open(&g, path, e);
    if (rc)
        return rc;
    rc = tokenizer_create(out, g, e);
    gguf_close(g);
    return rc ? err_prefix(e, "%s", path) : 0;
}

static int print_ids(const struct token_list *l, bool json, struct err *e) {
    if (json) {
        struct json_writer w = {0};
        jw_begin(&w, '{');
        decode_json_ids(&w, "ids", l->ids, (int64_t)l->count);
        jw_end(&w, '}');
        return cli_print_json(&w, e);
    }
    struct str out = {0};
    for (size_t i = 0; i < l->count; i++)
        str_printf(&out, "%s%d", i > 0 ? "," : "", l->ids[i]);
    str_putc(&out, '\n');
    return cli_print(&out, e);
}

int cmd_tokenize(const struct cli_args *a, struct err *e) {
    struct tokenizer *t = NULL;
    struct str text = {0};
    struct token_list ids = {0};
    int rc = cli_read_text(a, &text, e);
    if (!rc)
        rc = open_tokenizer(a, &t, e);
    if (!rc && tokenizer_add_bos(t))
        rc = token_list_push(&ids, tokenizer_bos(t), e);
    if (!rc)
        rc = tokenizer_encode(t, text.data ? text.data : "", text.len,
                              !options_flag(&a->opt, OPT_NO_SPECIAL), &ids, e);
    if (!rc)
        rc = print_ids(&ids, options_flag(&a->opt, OPT_JSON), e);
    token_list_fini(&ids);
    str_fini(&text);
    tokenizer_destroy(t);
    return rc;
}

static int print_text(struct str *text, bool json, struct err *e) {
    if (json && !text->failed) {
        struct json_writer w = {0};
        jw_begin(&w, '{');
        jw_key_text(&w, "text", text->data ? text->data : "", text->len);
        jw_end(&w, '}');
        return cli_print_json(&w, e);
    }
    if (isatty(STDOUT_FILENO))
        str_putc(text, '\n');
    return cli_print(text, e);
}

static int decode_ids(const struct cli_args *a, const struct tokenizer *t, struct str *out,
                      struct err *e) {
    size_t count;
    const int32_t *ids = options_list(&a->opt, OPT_IDS, &count);
    bool special = !options_flag(&a->opt, OPT_NO_SPECIAL);
    struct utf8_stream stream = {0};
    struct str bytes = {0};
    bool first = tokenizer_blank_first(t);
    int rc = 0;
    for (size_t i = 0; i < count && !rc; i++) {
        if (ids[i] < 0 || ids[i] >= tokenizer_size(t))
            rc = err_set(e, ERR_MISMATCH,
                         "id %d is outside the vocabulary of %s, whose ids are 0 to %d; "
                         "give ids of this model",
                         ids[i], options_str(&a->opt, OPT_MODEL), tokenizer_size(t) - 1);
        str_clear(&bytes);
        tokenizer_decode(t, ids[i], special, &bytes);
        bool drop = first && bytes.len > 0 && *bytes.data == ' ';
        first = first && bytes.len == 0;
        utf8_stream_push(&stream, bytes.data ? bytes.data + drop : "", bytes.len - drop, out);
    }
    utf8_stream_end(&stream, out);
    if (!rc && (bytes.failed || out->failed))
        rc = err_set(e, ERR_MEMORY, "no memory for the text of %zu tokens; give fewer", count);
    str_fini(&bytes);
    return rc;
}

int cmd_detokenize(const struct cli_args *a, struct err *e) {
    struct tokenizer *t = NULL;
    struct str text = {0};
    int rc = cli_need(a, OPT_IDS, e);
    if (!rc)
        rc = open_tokenizer(a, &t, e);
    if (!rc)
        rc = decode_ids(a, t, &text, e);
    if (!rc)
        rc = print_text(&text, options_flag(&a->opt, OPT_JSON), e);
    str_fini(&text);
    tokenizer_destroy(t);
    return rc;
}
