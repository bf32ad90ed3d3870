// SPDX-License-Identifier: Apache-2.0
// `coppice template`: renders a chat template with exactly the variables of a file, as
// apply_chat_template would, and prints the bytes; with --json also which of them the template
// wrote. No model is loaded: of a model file only the metadata is read.

#include "cli/chat/dialog.h"
#include "cli/models/decode.h"

// The template of the options: a template alone, or that of a model file with its vocabulary.
static int open_template(const struct cli_args *a, struct tokenizer **t, struct chat_template **out,
                         struct err *e) {
    const char *model = options_str(&a->opt, OPT_MODEL);
    if (!model == !options_given(&a->opt, OPT_TEMPLATE_FILE))
        return err_set(e, ERR_USAGE,
                       "'template' needs either -m FILE or --chat-template-file FILE");
    return model ? dialog_template_of_model(model, t, out, e)
                 : dialog_template(options_str(&a->opt, OPT_TEMPLATE_FILE), NULL, out, e);
}

static void put_origins(struct json_writer *w, const struct chat_text *x) {
    size_t begin = 0;
    jw_key_begin(w, "spans", '[');
    for (size_t i = 0; i < x->n_spans; begin = x->spans[i++].end) {
        jw_begin(w, '{');
        jw_key_str(w, "origin", x->spans[i].trusted ? "template" : "input");
        jw_key_int(w, "begin", (int64_t)begin);
        jw_key_int(w, "end", (int64_t)x->spans[i].end);
        jw_key_text(w, "text", x->text.data + begin, x->spans[i].end - begin);
        jw_end(w, '}');
    }
    jw_end(w, ']');
}

// The text, where its parts come from, and, with a vocabulary, its tokens.
static int print_rendered_json(const struct chat_text *x, const struct tokenizer *t,
                               struct err *e) {
    struct json_writer w = {0};
    struct token_list ids = {0};
    int rc = t ? chat_encode(t, x, &ids, e) : 0;
    if (rc)
        return rc;
    jw_begin(&w, '{');
    jw_key_text(&w, "text", x->text.data ? x->text.data : "", x->text.len);
    put_origins(&w, x);
    if (t)
        decode_json_ids(&w, "ids", ids.ids, (int64_t)ids.count);
    jw_end(&w, '}');
    token_list_fini(&ids);
    return cli_print_json(&w, e);
}

// What a template refuses is no misuse of the program.
static int refuse_by_template(int rc, struct err *e) {
    if (rc != ERR_USAGE)
        return rc;
    e->code = ERR_FORMAT;
    return ERR_FORMAT;
}

int cmd_template(const struct cli_args *a, struct err *e) {
    struct tokenizer *t = NULL;
    struct chat_template *form = NULL;
    struct json *variables = NULL;
    struct chat_text x = {0};
    int rc = cli_need(a, OPT_MESSAGES, e);
    if (!rc)
        rc = open_template(a, &t, &form, e);
    if (!rc)
        rc = dialog_read_file(options_str(&a->opt, OPT_MESSAGES), &variables, e);
    if (!rc)
        rc = refuse_by_template(chat_render_raw(form, variables, &x, e), e);
    if (!rc && options_flag(&a->opt, OPT_JSON))
        rc = print_rendered_json(&x, t, e);
    else if (!rc)
        rc = cli_write(x.text.data ? x.text.data : "", x.text.len, e);
    chat_text_fini(&x);
    json_free(variables);
    chat_template_free(form);
    tokenizer_destroy(t);
    return rc;
}
