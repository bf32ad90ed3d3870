// SPDX-License-Identifier: Apache-2.0
// `coppice tokenize`: text to token ids, as `generate` would see them.
#include "cli/models/tokens.h"

static int print_ids(const struct token_list *l, bool json, struct err *e) {
    if (json) {
        struct json_writer w = {0};
        jw_begin(&w, '{');
        jw_key(&w, "ids");
        jw_begin(&w, '[');
        for (size_t i = 0; i < l->count; i++)
            jw_int(&w, l->ids[i]);
        jw_end(&w, ']');
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
        rc = cli_open_tokenizer(a, &t, e);
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
