// SPDX-License-Identifier: Apache-2.0
// The HTTP server over real sockets: requests and answers, what is refused and with which status,
// limits, keys, names, CORS.
#include "test.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "http_peer.h"

static struct peer_server server;

// A host name with many addresses, all of this machine.
enum { ADDRESSES = 20 };
static const char many_name[] = "many.test";
int __real_getaddrinfo(const char *name, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *name, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *name, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out) {
    if (strcmp(name, many_name))
        return __real_getaddrinfo(name, port, hints, out);
    *out = NULL;
    for (int i = ADDRESSES; i > 0; i--) {
        char text[16];
        struct addrinfo *a;
        snprintf(text, sizeof text, "127.0.0.%d", i);
        assert_int_equal(__real_getaddrinfo(text, port, hints, &a), 0);
        assert_null(a->ai_next);
        a->ai_next = *out;
        *out = a;
    }
    return 0;
}

static int start(void **state) {
    (void)state;
    peer_start(&server, (struct http_options){.head_bytes = 8192, .body_bytes = 100000});
    return 0;
}

static int stop(void **state) {
    (void)state;
    peer_stop(&server);
    return 0;
}

#define HOST "Host: localhost\r\n"

static void a_request_is_answered(void **state) {
    (void)state;
    struct str out = {0};
    assert_int_equal(peer_ask(&server, "GET /hello HTTP/1.1\r\n" HOST "\r\n", &out), 200);
    assert_non_null(strstr(out.data, "HTTP/1.1 200 OK\r\nDate: "));
    assert_non_null(strstr(out.data, "\r\nContent-Length: 5\r\n"));
    assert_string_equal(out.data + out.len - 9, "\r\n\r\nhello");
    assert_int_equal(peer_ask(&server,
                              "POST /a%20b%C3%A9?x=%20 HTTP/1.1\r\n" HOST
                              "x-TEST:  some thing \r\nContent-Length: 3\r\n\r\nabc",
                              &out),
                     200);
    assert_non_null(strstr(out.data, "\r\n\r\nPOST /a b\xC3\xA9?x=%20 some thing: abc"));
    assert_non_null(strstr(out.data, "X-Answer: one  two: three\r\n"));
    assert_int_equal(peer_ask(&server, "GET http://localhost:1/q?r HTTP/1.1\r\n" HOST "\r\n", &out),
                     200);
    assert_non_null(strstr(out.data, "GET /q?r -: "));
    str_fini(&out);
}

static void one_connection_serves_many(void **state) {
    (void)state;
    struct str head = {0}, body = {0};
    int fd = peer_connect(&server);
    for (int i = 0; i < 20; i++) {
        peer_send(fd, "GET /hello HTTP/1.1\r\n" HOST "\r\n");
        assert_int_equal(peer_answer(fd, &head, &body), 200);
        assert_string_equal(body.data, "hello");
        peer_send(fd, "POST /x HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n12");
        WAIT_UNTIL(peer_counts(&server).body_bytes > 0); // it has been read
        peer_send(fd, "345");
        assert_int_equal(peer_answer(fd, &head, &body), 200);
        assert_string_equal(body.data, "POST /x? -: 12345");
        peer_send(fd, "GET /stream HTTP/1.1\r\n" HOST "\r\n");
        assert_int_equal(peer_answer(fd, &head, &body), 200);
        assert_string_equal(body.data, "data: x\n\ndata: x\n\ndata: x\n\n");
    }
    close(fd);
    str_fini(&head);
    str_fini(&body);
}

// Far more than the answers' room, sent without reading anything.
static void pipelined_requests_are_answered_in_order(void **state) {
    (void)state;
    enum { N = 20000 };
    struct str all = {0}, head = {0}, body = {0};
    for (int i = 0; i < N; i++)
        str_printf(&all, "POST /%d HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\n%04d", i,
                   i % 10000);
    int fd = peer_connect(&server);
    pid_t child = fork();
    if (child == 0) {
        peer_send_bytes(fd, all.data, all.len);
        shutdown(fd, SHUT_WR);
        _exit(0);
    }
    for (int i = 0; i < N; i++) {
        char want[64];
        snprintf(want, sizeof want, "POST /%d? -: %04d", i, i % 10000);
        assert_int_equal(peer_answer(fd, &head, &body), 200);
        assert_string_equal(body.data, want);
    }
    close(fd);
    str_fini(&all);
    str_fini(&head);
    str_fini(&body);
}

// More of them than one turn takes are all answered, and the last one ends the connection.
static void many_pipelined_requests_are_answered(void **state) {
    (void)state;
    enum { MANY = 3000 };
    struct str text = {0}, out = {0};
    for (int i = 0; i < MANY; i++)
        str_printf(&text, "GET /echo?%d. HTTP/1.1\r\n" HOST "%s\r\n", i,
                   i == MANY - 1 ? "Connection: close\r\n" : "");
    peer_ask(&server, text.data, &out);
    const char *at = out.data;
    for (int i = 0; i < MANY; i++) {
        char want[32];
        snprintf(want, sizeof want, "?%d. ", i);
        at = strstr(at, want);
        assert_non_null(at);
    }
    str_fini(&text);
    str_fini(&out);
}

// A request of another connection does not wait for all that lie in the kernel when it comes.
static void pipelined_requests_take_turns(void **state) {
    (void)state;
    enum { MANY = 1000, FEW = 100 };
    struct str text = {0}, head = {0}, body = {0};
    int fd = peer_connect(&server);
    server.other = peer_connect(&server);
    server.sent = 0;
    str_puts(&text, "GET /nudge HTTP/1.1\r\n" HOST "\r\n");
    for (int i = 0; i < MANY; i++)
        str_puts(&text, "GET /a HTTP/1.1\r\n" HOST "\r\n");
    peer_send_bytes(fd, text.data, text.len);
    server.sent = 1;
    assert_int_equal(peer_answer(server.other, &head, &body), 200);
    assert_in_range(server.marked, 1, FEW);
    for (int i = 0; i <= MANY; i++)
        assert_int_equal(peer_answer(fd, &head, &body), 200);
    close(fd);
    close(server.other);
    str_fini(&text);
    str_fini(&head);
    str_fini(&body);
}

static void a_request_may_come_byte_by_byte(void **state) {
    (void)state;
    static const char text[] =
        "\r\nPOST /x HTTP/1.1\r\n" HOST
        "Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n01\r\nd\r\n0\r\nT: "
        "u\r\n\r\nGET /hello HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n";
    struct str head = {0}, body = {0};
    int fd = peer_connect(&server);
    for (const char *p = text; *p; p++) {
        peer_send_bytes(fd, p, 1);
        peer_counts(&server); // the loop has turned
    }
    assert_int_equal(peer_answer(fd, &head, &body), 200);
    assert_string_equal(body.data, "POST /x? -: abcd");
    assert_int_equal(peer_answer(fd, &head, &body), 200);
    assert_string_equal(body.data, "hello");
    assert_non_null(strstr(head.data, "Connection: close"));
    assert_int_equal(peer_read_all(fd, NULL, PATIENCE), 0);
    close(fd);
    str_fini(&head);
    str_fini(&body);
}

static void head_is_get_without_its_body(void **state) {
    (void)state;
    struct str out = {0};
    assert_int_equal(peer_ask(&server, "HEAD /hello HTTP/1.1\r\n" HOST "\r\n", &out), 200);
    assert_non_null(strstr(out.data, "Content-Length: 5\r\n"));
    assert_string_equal(out.data + out.len - 4, "\r\n\r\n");
    assert_int_equal(peer_ask(&server, "HEAD /stream HTTP/1.1\r\n" HOST "\r\n", &out), 200);
    assert_string_equal(out.data + out.len - 4, "\r\n\r\n");
    str_fini(&out);
}

static void old_clients_get_the_old_form(void **state) {
    (void)state;
    struct str out = {0}, body = {0};
    assert_int_equal(peer_ask(&server, "GET /stream HTTP/1.0\r\n\r\n", &out), 200);
    assert_null(strstr(out.data, "chunked"));
    assert_string_equal(out.data + out.len - 31, "\r\n\r\ndata: x\n\ndata: x\n\ndata: x\n\n");
    int fd = peer_connect(&server);
    for (int i = 0; i < 2; i++) {
        peer_send(fd, "GET /hello HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        assert_int_equal(peer_answer(fd, &out, &body), 200);
        assert_non_null(strstr(out.data, "Connection: keep-alive"));
    }
    close(fd);
    str_fini(&out);
    str_fini(&body);
}

static void a_body_is_requested_by_100_continue(void **state) {
    (void)state;
    struct str head = {0}, body = {0};
    int fd = peer_connect(&server);
    peer_send(fd, "POST /x HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_int_equal(peer_answer(fd, &head, &body), 100);
    peer_send(fd, "ok");
    assert_int_equal(peer_answer(fd, &head, &body), 200);
    assert_string_equal(body.data, "POST /x? -: ok");
    // One that is too large is refused before it is sent.
    peer_send(fd,
              "POST /x HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 200000\r\n\r\n");
    assert_int_equal(peer_answer(fd, &head, &body), 413);
    close(fd);
    str_fini(&head);
    str_fini(&body);
}

static void errors_have_their_status(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *text;
    } cases[] = {
        {400, "GET /hello HTTP/1.1\r\n\r\n"},
        {400, "GET /hello HTTP/1.1\r\n" HOST HOST "\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 2, 2\r\n\r\nab"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: -2\r\n\r\nab"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: +2\r\n\r\nab"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 0x2\r\n\r\nab"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\nab"},
        {400, "POST / HTTP/1.1\r\n" HOST
              "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
        {501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
        {400, "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n"},
        {400,
         "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\na\r\n"},
        {413, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nfffffffffffffff0\r\na"},
        {413, "POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999999\r\n\r\n"},
        {413, "POST / HTTP/1.1\r\n" HOST "Content-Length: 100001\r\n\r\n"},
        {417, "POST / HTTP/1.1\r\n" HOST "Expect: miracles\r\nContent-Length: 1\r\n\r\na"},
        {501, "BREW / HTTP/1.1\r\n" HOST "\r\n"},
        {501, "CONNECT a:1 HTTP/1.1\r\n" HOST "\r\n"},
        {501, "get / HTTP/1.1\r\n" HOST "\r\n"},
        {505, "GET / HTTP/2.0\r\n" HOST "\r\n"},
        {505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
        {400, "GET / HTTP/1\r\n" HOST "\r\n"},
        {400, "GET / http/1.1\r\n" HOST "\r\n"},
        {400, "GET /\r\n" HOST "\r\n"},
        {400, "GET  / HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET hello HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET /hello#x HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET http:///hello HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET http://evil@localhost/hello HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET /hello HTTP/1.1\r\nHost: evil@localhost\r\n\r\n"},
        {400, "GET /hello HTTP/1.1\r\nHost: localhost/evil\r\n\r\n"},
        {400, "GET /hello HTTP/1.1\r\nHost: localhost evil\r\n\r\n"},
        {200, "GET http://localhost:80/hello HTTP/1.1\r\n" HOST "\r\n"},
        {400, "\r\n\r\n\r\nGET /hello HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET /%zz HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET /%00 HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET /%ff HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET /\x80 HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "nonsense\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "A: b\r\n c\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "A: b\rc\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "A: b\nC: d\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "A: \x01\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST ": b\r\n\r\n"},
        {403, "GET /hello HTTP/1.1\r\nHost: evil.example\r\n\r\n"},
        {403, "GET /hello HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n"},
        {403, "GET /hello HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n"},
        {403, "GET /hello HTTP/1.1\r\nHost:\r\n\r\n"},
        {403, "GET http://evil.example/hello HTTP/1.1\r\n" HOST "\r\n"},
        {403, "POST /hello HTTP/1.1\r\n" HOST
              "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\nContent-Length: "
              "2\r\n\r\n{}"},
        {403, "POST /hello HTTP/1.1\r\n" HOST "Origin: https://evil.example\r\n\r\n"},
        {403, "GET /hello HTTP/1.1\r\n" HOST "Origin: https://evil.example\r\n\r\n"},
        {403, "DELETE /hello HTTP/1.1\r\n" HOST "Origin: null\r\n\r\n"},
        {403, "POST /hello HTTP/1.1\r\n" HOST "Origin:\r\n\r\n"},
        {403, "POST /hello HTTP/1.1\r\n" HOST "Origin: http://localhost:3000\r\n\r\n"},
        {403, "POST /hello HTTP/1.1\r\n" HOST "Origin: http://localhost.evil.example\r\n\r\n"},
        {403, "POST /hello HTTP/1.1\r\n" HOST "Origin: http://localhost@evil.example\r\n\r\n"},
        {403, "POST /hello HTTP/1.1\r\nHost: localhost:81\r\nOrigin: http://localhost\r\n\r\n"},
        {403, "POST /hello HTTP/1.1\r\n" HOST "Sec-Fetch-Site: same-site\r\n\r\n"},
        {200, "POST /hello HTTP/1.1\r\n" HOST "Origin: http://localhost\r\n\r\n"},
        {200, "POST /hello HTTP/1.1\r\nHost: [::1]:81\r\nOrigin: https://[::1]:81\r\n\r\n"},
        {200, "POST /hello HTTP/1.1\r\n" HOST "Sec-Fetch-Site: none\r\n\r\n"},
        {200, "GET /hello HTTP/1.1\r\n" HOST "Sec-Fetch-Site: cross-site\r\n\r\n"},
        {200, "GET /hello HTTP/1.1\r\nHost: LocalHost:81\r\n\r\n"},
        {200, "GET /hello HTTP/1.1\r\nHost: a.localhost.:81\r\n\r\n"},
        {200, "GET /hello HTTP/1.1\r\nHost: 127.9.9.9\r\n\r\n"},
        {200, "GET /hello HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"},
        {200, "GET /hello HTTP/1.7\r\n" HOST "\r\n"},
        {200, "POST /hello HTTP/1.1\r\n" HOST "\r\n"},
        {204, "OPTIONS * HTTP/1.1\r\n" HOST "\r\n"},
    };
    struct str out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = peer_ask(&server, cases[i].text, &out);
        if (status != cases[i].status)
            fail_msg("%d, not %d: %s", status, cases[i].status, cases[i].text);
        if (status >= 400 && !strstr(out.data, "\r\nContent-Type: text/plain"))
            fail_msg("no body: %s", out.data);
    }
    str_fini(&out);
}

static void bytes_after_a_broken_request_are_not_read(void **state) {
    (void)state;
    struct str out = {0};
    // Heads, each with a second request after it: a body, announced or not, or what comes after
    // the last answer.
    static const char *const cases[] = {
        "POST /hello HTTP/1.1\r\n" HOST,
        "PUT /hello HTTP/1.1\r\n" HOST,
        "POST /x HTTP/1.1\r\n" HOST "Content-Length: 200000\r\n",
        "POST /x HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n",
        "GET /x HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n",
        "POST /x HTTP/1.1\r\n" HOST "Content-Length: 40x\r\n",
        "POST /x HTTP/1.1\r\n" HOST "Content-Length: 40\r\nContent-Length: 40\r\n",
        "POST /x HTTP/1.1\r\n" HOST "Expect: x\r\nContent-Length: 40\r\n",
        "POST /x HTTP/1.1\r\n" HOST "Expect: x\r\nTransfer-Encoding: chunked\r\n",
        "GET /x HTTP/1.1\r\n" HOST "Expect: x\r\nContent-Length: 40\r\n",
        "POST /x HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "POST /x HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\nContent-Length: 40\r\n",
        "POST /x HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n", // and no size
        "BREW /x HTTP/1.1\r\n" HOST "Content-Length: 40\r\n",
        "POST /x HTTP/2.0\r\n" HOST "Content-Length: 40\r\n",
        "POST x HTTP/1.1\r\n" HOST "Content-Length: 40\r\n",
        "POST /x HTTP/1.1\r\nContent-Length: 40\r\n",
        "POST /x HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 40\r\n",
        "POST /x HTTP/1.1\r\n" HOST "Content-Length : 40\r\n",
        "GET /hello HTTP/1.1\r\n" HOST "Connection: close\r\n",
        "GET /hello HTTP/1.1\r\n" HOST "Connection: close\r\nConnection: keep-alive\r\n",
        "GET /hello HTTP/1.0\r\n" HOST "Connection: close\r\nConnection: keep-alive\r\n",
        "GET /hello HTTP/1.0\r\n" HOST,
    };
    struct str text = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        str_clear(&text);
        str_printf(&text, "%s\r\nGET /echo?smuggled HTTP/1.1\r\n" HOST "\r\n", cases[i]);
        peer_ask(&server, text.data, &out);
        if (strstr(out.data, "smuggled") || !strstr(out.data, "Connection: close") ||
            strstr(strstr(out.data, "Date:") + 1, "Date:"))
            fail_msg("%s: %s", cases[i], out.data);
    }
    str_fini(&text);
    // Garbage after a good request breaks nothing but itself.
    peer_ask(&server, "GET /hello HTTP/1.1\r\n" HOST "\r\n\x16\x03\x01 garbage\r\n\r\n", &out);
    assert_non_null(strstr(out.data, "hello"));
    assert_non_null(strstr(out.data, "HTTP/1.1 400 "));
    str_fini(&out);
}

static void large_heads_and_bodies_are_refused(void **state) {
    (void)state;
    struct str text = {0}, out = {0};
    str_puts(&text, "GET /hello HTTP/1.1\r\n" HOST "A: ");
    for (int i = 0; i < 8192; i++)
        str_putc(&text, 'a');
    assert_int_equal(peer_ask(&server, text.data, &out), 431); // without its end
    str_puts(&text, "\r\n\r\n");
    assert_int_equal(peer_ask(&server, text.data, &out), 431);
    str_clear(&text);
    str_puts(&text, "GET /hello HTTP/1.1\r\n" HOST);
    for (int i = 0; i < 128; i++)
        str_puts(&text, "A: b\r\n");
    str_puts(&text, "\r\n");
    assert_int_equal(peer_ask(&server, text.data, &out), 431);
    // The whole body is sent although it is refused; the answer arrives all the same.
    for (int chunked = 0; chunked < 2; chunked++) {
        str_clear(&text);
        str_printf(&text, "POST /x HTTP/1.1\r\n" HOST "%s\r\n\r\n",
                   chunked ? "Transfer-Encoding: chunked" : "Content-Length: 3000000");
        for (int i = 0; i < 3000; i++)
            str_printf(&text, "%s%01000d%s", chunked ? "3e8\r\n" : "", i, chunked ? "\r\n" : "");
        str_puts(&text, chunked ? "0\r\n\r\n" : "");
        assert_int_equal(peer_ask(&server, text.data, &out), 413);
    }
    str_fini(&text);
    str_fini(&out);
}

static void keys_open(void **state) {
    (void)state;
    static const char *const keys[] = {"first", "second-key"}, *const open[] = {"/health"};
    struct peer_server s;
    peer_start(&s, (struct http_options){
                       .keys = keys, .n_keys = 2, .open_paths = open, .n_open_paths = 1});
    static const struct {
        int status;
        const char *text;
    } cases[] = {
        {401, "GET / HTTP/1.1\r\nHost: any.example\r\n\r\n"},
        {200, "GET /health HTTP/1.1\r\nHost: any.example\r\n\r\n"},
        {200, "GET / HTTP/1.1\r\nHost: any.example\r\nAuthorization: Bearer first\r\n\r\n"},
        {200, "GET / HTTP/1.1\r\n" HOST "Authorization: bearer  second-key\r\n\r\n"},
        {200, "GET / HTTP/1.1\r\n" HOST "X-API-Key: second-key\r\n\r\n"},
        {200,
         "GET / HTTP/1.1\r\n" HOST "X-API-Key: second-key\r\nAuthorization: Bearer other\r\n\r\n"},
        {401, "GET / HTTP/1.1\r\n" HOST "X-API-Key: second-kez\r\n\r\n"},
        {401, "GET / HTTP/1.1\r\n" HOST "X-API-Key: second-ke\r\n\r\n"},
        {401, "GET / HTTP/1.1\r\n" HOST "X-API-Key: second-key2\r\n\r\n"},
        {401, "GET / HTTP/1.1\r\n" HOST "X-API-Key: f\r\n\r\n"},
        {401, "GET / HTTP/1.1\r\n" HOST "X-API-Key:\r\n\r\n"},
        {401, "GET / HTTP/1.1\r\n" HOST "Authorization: Basic first\r\n\r\n"},
        {401, "GET / HTTP/1.1\r\n" HOST "Authorization: first\r\n\r\n"},
        {401, "POST / HTTP/1.1\r\n" HOST "Content-Length: 50000000\r\n\r\n"}, // before its body
        {204, "OPTIONS / HTTP/1.1\r\n" HOST "\r\n"},
    };
    struct str out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = peer_ask(&s, cases[i].text, &out);
        if (status != cases[i].status)
            fail_msg("%d, not %d: %s", status, cases[i].status, cases[i].text);
        assert_true(status != 401 || strstr(out.data, "WWW-Authenticate: Bearer"));
    }
    str_fini(&out);
    peer_stop(&s);
}

static void other_origins_read_only_when_allowed(void **state) {
    (void)state;
    static const char *const origins[] = {"https://a.example", "loopback"};
    static const char preflight[] =
        "OPTIONS /v1/x HTTP/1.1\r\n" HOST "Origin: https://a.example\r\n"
        "Access-Control-Request-Method: POST\r\n"
        "Access-Control-Request-Headers: x-stainless-os\r\n\r\n";
    struct str out = {0};
    struct peer_server s;
    assert_int_equal(peer_ask(&server, preflight, &out), 204);
    assert_null(strstr(out.data, "Access-Control"));
    peer_start(&s, (struct http_options){.origins = origins, .n_origins = 2});
    assert_int_equal(peer_ask(&s, preflight, &out), 204);
    assert_non_null(strstr(out.data, "Access-Control-Allow-Origin: https://a.example\r\n"));
    // Else a page could not see what of its request did nothing.
    assert_non_null(strstr(out.data, "Access-Control-Expose-Headers: "));
    assert_non_null(strstr(out.data, "x-ignored-fields"));
    assert_non_null(strstr(out.data, "Access-Control-Allow-Headers: Authorization, Content-Type"));
    assert_non_null(strstr(out.data, ", x-stainless-os\r\n"));
    assert_null(strstr(out.data, "Content-Length"));
    peer_ask(&s, "GET /hello HTTP/1.1\r\n" HOST "Origin: http://localhost:5173\r\n\r\n", &out);
    assert_non_null(strstr(out.data, "Access-Control-Allow-Origin: http://localhost:5173\r\n"));
    peer_ask(&s, "GET /hello HTTP/1.1\r\n" HOST "Origin: https://b.example\r\n\r\n", &out);
    assert_null(strstr(out.data, "Access-Control-Allow-Origin"));
    assert_non_null(strstr(out.data, "Vary: Origin"));
    peer_ask(&s, "GET /hello HTTP/1.1\r\n" HOST "Origin: http://localhost.b.example\r\n\r\n", &out);
    assert_null(strstr(out.data, "Access-Control-Allow-Origin"));
    str_fini(&out);
    peer_stop(&s);
}

// A path is listened on however many addresses the name besides it has.
static void a_path_has_its_place(void **state) {
    (void)state;
    struct peer_server s;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct str out = {0};
    char path[64];
    size_t n = 0;
    snprintf(path, sizeof path, "/tmp/test_http.%d.sock", (int)getpid());
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    peer_start(&s, (struct http_options){.host = many_name, .unix_path = path});
    while (http_address(s.http, n))
        n++;
    assert_true(n > 8); // addresses as far as there is room
    assert_non_null(strstr(http_address(s.http, n - 1), path));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    peer_send(fd, "GET /hello HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
    assert_int_equal(peer_read_all(fd, &out, PATIENCE), 0);
    assert_non_null(strstr(out.data, "\r\n\r\nhello"));
    close(fd);
    str_fini(&out);
    peer_stop(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_answered),
        cmocka_unit_test(one_connection_serves_many),
        cmocka_unit_test(pipelined_requests_are_answered_in_order),
        cmocka_unit_test(many_pipelined_requests_are_answered),
        cmocka_unit_test(pipelined_requests_take_turns),
        cmocka_unit_test(a_request_may_come_byte_by_byte),
        cmocka_unit_test(head_is_get_without_its_body),
        cmocka_unit_test(old_clients_get_the_old_form),
        cmocka_unit_test(a_body_is_requested_by_100_continue),
        cmocka_unit_test(errors_have_their_status),
        cmocka_unit_test(bytes_after_a_broken_request_are_not_read),
        cmocka_unit_test(large_heads_and_bodies_are_refused),
        cmocka_unit_test(keys_open),
        cmocka_unit_test(other_origins_read_only_when_allowed),
        cmocka_unit_test(a_path_has_its_place),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
