// SPDX-License-Identifier: Apache-2.0
// `coppice detokenize`: token ids to text. The text is written as it is, but for the blank that
// SentencePiece puts before a text; a newline is added only for a terminal, so that a pipe gets
// every byte and nothing else.
#include <unistd.h>

#include "cli/models/tokens.h"

static int print_text(struct str *text, bool json, struct err *e) {
    if (json && !text->failed) {
        struct json_writer w = {0};
        jw_begin(&w, '{');
        jw_key(&w, "text");
        jw_str(&w, text->data ? text->data : "", text->len);
        jw_end(&w, '}');
        return cli_print_json(&w, e);
    }
    if (isatty(STDOUT_FILENO))
        str_putc(text, '\n');
    return cli_print(text, e);
}

static int decode(const struct cli_args *a, const struct tokenizer *t, struct str *out,
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
        rc = cli_open_tokenizer(a, &t, e);
    if (!rc)
        rc = decode(a, t, &text, e);
    if (!rc)
        rc = print_text(&text, options_flag(&a->opt, OPT_JSON), e);
    str_fini(&text);
    tokenizer_destroy(t);
    return rc;
}
