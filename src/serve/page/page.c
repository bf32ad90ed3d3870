// SPDX-License-Identifier: Apache-2.0
// The assembler copies page.html into the read-only data as it is: no generated array, which a
// compiler takes seconds for, and no file to find at run time. PAGE_HTML is its full name.
#include "serve/page/page.h"

#include "serve/page/data.h"

__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        "coppice_page_html:\n"
        ".incbin \"" PAGE_HTML "\"\n"
        "coppice_page_html_end:\n"
        ".byte 0\n"
        ".popsection\n");

extern const char coppice_page_html[];
extern const char coppice_page_html_end[];

struct page page_get(void) {
    return (struct page){
        .html = coppice_page_html,
        .size = (size_t)(coppice_page_html_end - coppice_page_html),
        .etag = PAGE_ETAG,
        .policy = PAGE_POLICY,
    };
}
