// SPDX-License-Identifier: Apache-2.0
// What a user of `chat` types or pastes, as lines on standard input: they become messages, and no
// message can forge the marks between messages, whatever it spells.
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/chat/terminal.h"
#include "text/chat/chat.h"

static struct tokenizer *vocabulary;
static struct chat_template *form; // ChatML: the file has no template of its own

void fuzz_setup(void) {
    struct gguf *g = NULL;
    struct err e = {0};
    FUZZ_CHECK(gguf_open(&g, FUZZ_CORPUS "/tokenizer/chatml.gguf", &e) == 0);
    FUZZ_CHECK(tokenizer_create(&vocabulary, g, &e) == 0);
    FUZZ_CHECK(chat_template_of_gguf(&form, g, vocabulary, &e) == 0);
    gguf_close(g);
}

static int encode(const struct str *message, struct token_list *ids, struct err *e) {
    struct conversation said = {0};
    struct chat_text x = {0};
    struct conversation_part *p =
        conversation_part(&said, conversation_new_turn(&said, CONVERSATION_USER), PART_TEXT);
    if (p)
        p->text = conversation_copy(&said, message->data ? message->data : "", message->len);
    const struct chat_input in = {.said = &said, .add_generation_prompt = true};
    int rc = chat_render(form, &in, &x, e);
    if (!rc)
        rc = chat_encode(vocabulary, &x, ids, e);
    chat_text_fini(&x);
    conversation_fini(&said);
    return rc;
}

// A message has one mark at each end and none inside; another begins the answer.
static void check_message(const struct str *message, bool fragile) {
    struct token_list ids = {0};
    struct err e = {0};
    FUZZ_CHECK(utf8_valid(message->data ? message->data : "", message->len));
    int rc = encode(message, &ids, &e);
    fuzz_sentence(rc, &e);
    FUZZ_CHECK(rc == 0 || (fragile && rc == ERR_MEMORY));
    int32_t start = tokenizer_find(vocabulary, "<|im_start|>", 12);
    int32_t end = tokenizer_find(vocabulary, "<|im_end|>", 10);
    int starts = 0, ends = 0;
    for (size_t i = 0; i < ids.count && rc == 0; i++) {
        starts += ids.ids[i] == start;
        ends += ids.ids[i] == end;
    }
    FUZZ_CHECK(rc != 0 || (starts == 2 && ends == 1 && ids.ids[0] == start));
    token_list_fini(&ids);
}

static int read_all(bool fragile, size_t size, struct err *e) {
    struct edit *ed = NULL;
    struct str message = {0};
    int rc = edit_create(&ed, NULL, e);
    if (rc)
        return rc;
    for (size_t i = 0; (rc = edit_read(ed, &message, e)) == EDIT_MESSAGE; i++) {
        FUZZ_CHECK(i <= size);
        check_message(&message, fragile);
    }
    str_fini(&message);
    edit_destroy(ed);
    return rc < 0 ? rc : 0;
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct fuzz_file f;
    struct err e = {0};
    fuzz_file_open(&f, data, size);
    FUZZ_CHECK(dup2(f.fd, STDIN_FILENO) == STDIN_FILENO);
    __fpurge(stdin); // what is left of the input before
    clearerr(stdin);
    int rc = read_all(fragile, size, &e);
    fuzz_result(rc, &e, fragile);
    fuzz_file_close(&f);
}
