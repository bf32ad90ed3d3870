// SPDX-License-Identifier: Apache-2.0
// The HTTP server over time: clients that vanish, close one side, stall or send a byte a second;
// slow readers; idle connections; calls from other threads; the end; where it listens.
#include "test.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "http_peer.h"
#include "serve/http/impl.h"

#define HOST  "Host: localhost\r\n"
#define HOLD  "GET /hold HTTP/1.1\r\n" HOST "\r\n"
#define HELLO "GET /hello HTTP/1.1\r\n" HOST "\r\n"

// Closes with a reset instead of an orderly end.
static void vanish(int fd) {
    struct linger hard = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
}

static void let_go(void *arg) {
    struct peer_server *s = arg;
    for (int i = 0; i < s->n_held; i++)
        if (s->held[i]) {
            if (s->begin_held)
                exchange_end(s->held[i]);
            else
                exchange_reply(s->held[i], 200, "text/plain", "late", 4);
            s->held[i] = NULL;
        }
}

// The monotonic clock of this program runs ahead of the system's by that many seconds.
static atomic_int ahead;
int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t) {
    int rc = __real_clock_gettime(id, t);
    t->tv_sec += id == CLOCK_MONOTONIC ? ahead : 0;
    return rc;
}

// Waits until more than `have` bytes can be read, and returns how many.
static size_t wait_bytes(int fd, size_t have) {
    static char bytes[4096];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int min = (int)have + 1, one = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &min, sizeof min);
    assert_int_equal(poll(&p, 1, PATIENCE), 1);
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    assert_true(n >= min);
    return (size_t)n;
}

// The client sends no more, and the server has written to see whether it is connected.
static size_t finish_sending(int fd, bool begun) {
    size_t have = begun ? wait_bytes(fd, 0) : 0;
    shutdown(fd, SHUT_WR);
    return wait_bytes(fd, have);
}

// Both kinds of answer, both ways to go, nothing being written: the handler hears of it at once.
static void a_client_that_goes_is_noticed(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct peer_server s;
        peer_start(&s, (struct http_options){0});
        s.begin_held = kind & 1;
        int fd = peer_connect(&s);
        peer_send(fd, HOLD);
        WAIT_UNTIL(s.n_held >= 1);
        assert_int_equal(peer_ask(&s, HELLO, NULL), 200);
        assert_int_equal(s.gone, 0);
        if (kind & 2)
            vanish(fd);
        else
            close(fd);
        WAIT_UNTIL(s.gone >= 1);
        http_post(s.http, let_go, &s);
        assert_int_equal(peer_ask(&s, HELLO, NULL), 200);
        assert_int_equal(s.gone, 1);
        peer_stop(&s);
    }
}

// Stands still in the loop until the test is ready.
static void stand_still(void *arg) {
    pthread_mutex_lock(arg);
    pthread_mutex_unlock(arg);
}

static void stop_loop(const struct peer_server *s, pthread_mutex_t *still) {
    pthread_mutex_init(still, NULL);
    pthread_mutex_lock(still);
    assert_int_equal(http_post(s->http, stand_still, still), 0);
}

// Their bytes are there to be read all the same.
static void requests_of_disconnected_clients_are_not_begun(void **state) {
    struct peer_server s;
    pthread_mutex_t still;
    struct str head = {0}, body = {0};
    (void)state;
    peer_start(&s, (struct http_options){0});
    stop_loop(&s, &still);
    for (int i = 0; i < 50; i++) {
        int fd = peer_connect(&s);
        peer_send(fd, HOLD);
        vanish(fd);
    }
    int fd = peer_connect(&s);
    peer_send(fd, HELLO);
    pthread_mutex_unlock(&still);
    assert_int_equal(peer_answer(fd, &head, &body), 200); // the last one in the queue
    assert_int_equal(s.handled, 1);
    close(fd);
    str_fini(&head);
    str_fini(&body);
    peer_stop(&s);
}

enum { CROWD = 400 };

static void connect_crowd(struct peer_server *s, int fds[CROWD]) {
    for (int i = 0; i < CROWD; i++)
        fds[i] = peer_connect(s);
}

struct closing {
    struct peer_server s;
    atomic_int done;
    bool left; // something closed was not freed
};

// In the loop, when the first bytes of all have come, which are to be looked at once more.
static void close_crowd(void *arg) {
    struct closing *t = arg;
    struct http *h = t->s.http;
    int n = 0;
    for (const struct conn *c = h->conns; c; c = c->next)
        n += conn_pending(c) > 0;
    if (n < CROWD) {
        assert_int_equal(http_post(h, close_crowd, t), 0);
        return;
    }
    for (struct conn *c = h->conns; c; c = c->next) {
        conn_mark(c);
        conn_close(c);
    }
    conn_flush(h);
    t->left = h->dead != NULL;
    atomic_store(&t->done, 1);
}

// Also when the loop has ended, where no event comes for them.
static void closed_connections_are_freed_at_once(void **state) {
    struct closing t = {0};
    int fds[CROWD];
    (void)state;
    peer_start(&t.s, (struct http_options){0});
    connect_crowd(&t.s, fds);
    for (int i = 0; i < CROWD; i++)
        peer_send(fds[i], "GET /he");
    assert_int_equal(http_post(t.s.http, close_crowd, &t), 0);
    WAIT_UNTIL(t.done >= 1);
    assert_false(t.left);
    for (int i = 0; i < CROWD; i++)
        close(fds[i]);
    peer_stop(&t.s);
}

// Clients that connect all at once do not hold up what other threads have posted, which is where
// the tokens of streams come from.
static void many_new_connections_do_not_starve_others(void **state) {
    struct peer_server s;
    pthread_mutex_t still;
    int fds[CROWD];
    (void)state;
    peer_start(&s, (struct http_options){0});
    stop_loop(&s, &still);
    connect_crowd(&s, fds);
    assert_int_equal(http_post(s.http, peer_tell_counts, &s), 0);
    pthread_mutex_unlock(&still);
    WAIT_UNTIL(s.posted >= 1);
    assert_in_range(s.counts.accepted, 0, 32);
    for (int i = 0; i < CROWD; i++)
        close(fds[i]);
    peer_stop(&s);
}

// Nor do those that all speak at once, with one request each or many.
static void many_active_connections_do_not_starve_others(void **state) {
    enum { PIPELINED = 100, AT_ONCE = 32, STEPS = 16 };
    (void)state;
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        struct peer_server s;
        pthread_mutex_t still;
        int fds[CROWD], n = pipelined ? PIPELINED : 1;
        peer_start(&s, (struct http_options){0});
        connect_crowd(&s, fds);
        WAIT_UNTIL((int)peer_counts(&s).connections == CROWD);
        stop_loop(&s, &still);
        for (int i = 0; i < CROWD; i++)
            for (int k = 0; k < n; k++)
                peer_send(fds[i], i == CROWD / 2 && k == (n - 1) / 2 ? "GET /post HTTP/1.1\r\n" HOST
                                                                       "\r\n"
                                                                     : HELLO);
        pthread_mutex_unlock(&still);
        WAIT_UNTIL(s.handled >= CROWD * n && s.before_posted >= 0);
        assert_in_range(s.before_posted, 0, 2 * AT_ONCE * (pipelined ? STEPS : 1));
        for (int i = 0; i < CROWD; i++)
            close(fds[i]);
        peer_stop(&s);
    }
}

// One that has only finished sending gets its whole answer.
static void a_half_closed_client_is_served(void **state) {
    (void)state;
    for (int begun = 0; begun < 2; begun++) {
        struct peer_server s;
        struct str head = {0}, body = {0};
        peer_start(&s, (struct http_options){0});
        s.begin_held = begun;
        int fd = peer_connect(&s);
        peer_send(fd, HOLD);
        WAIT_UNTIL(s.n_held >= 1);
        finish_sending(fd, begun);
        assert_int_equal(s.gone, 0);
        http_post(s.http, let_go, &s);
        int status = peer_answer(fd, &head, &body);
        if (status == 100) // the interim answer that asks the client to send
            status = peer_answer(fd, &head, &body);
        assert_int_equal(status, 200);
        assert_string_equal(body.data ? body.data : "", begun ? "" : "late");
        assert_int_equal(peer_read_all(fd, NULL, PATIENCE), 0);
        // And if it goes after all, that is noticed too.
        close(fd);
        fd = peer_connect(&s);
        peer_send(fd, HOLD);
        WAIT_UNTIL(s.n_held >= 2);
        finish_sending(fd, begun);
        assert_int_equal(s.gone, 0);
        close(fd);
        WAIT_UNTIL(begun || s.gone >= 1);
        str_fini(&head);
        str_fini(&body);
        peer_stop(&s);
    }
}

// Reads the interim answer of the server, so that closing is no reset.
static void read_some(int fd) {
    char bytes[512];
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        continue;
}

// One that goes long after it has finished sending does so without a word.
static void a_half_closed_client_that_goes_later_is_noticed(void **state) {
    (void)state;
    for (int begun = 0; begun < 2; begun++) {
        struct peer_server s;
        peer_start(&s, (struct http_options){0});
        s.begin_held = begun;
        int fd = peer_connect(&s);
        peer_send(fd, HOLD);
        WAIT_UNTIL(s.n_held >= 1);
        finish_sending(fd, begun);
        read_some(fd);
        ahead += 3;
        wait_bytes(fd, 0);
        read_some(fd);
        assert_int_equal(s.gone, 0);
        close(fd);
        ahead += 3;
        WAIT_UNTIL(s.gone >= 1);
        peer_stop(&s);
    }
}

// It is called again and again, and its answer is whole all the same.
static void a_half_closed_client_waits_long(void **state) {
    (void)state;
    for (int begun = 0; begun < 2; begun++) {
        struct peer_server s;
        struct str head = {0}, body = {0};
        int status, interim = 0;
        peer_start(&s, (struct http_options){0});
        s.begin_held = begun;
        int fd = peer_connect(&s);
        peer_send(fd, HOLD);
        WAIT_UNTIL(s.n_held >= 1);
        size_t have = finish_sending(fd, begun);
        for (int i = 0; i < 2; i++) {
            ahead += 3;
            have = wait_bytes(fd, have);
        }
        assert_int_equal(s.gone, 0);
        http_post(s.http, let_go, &s);
        while ((status = peer_answer(fd, &head, &body)) == 100)
            interim++;
        assert_int_equal(status, 200);
        assert_int_equal(interim, begun ? 0 : 3);
        assert_string_equal(body.data ? body.data : "", begun ? "" : "late");
        assert_int_equal(peer_read_all(fd, NULL, PATIENCE), 0);
        close(fd);
        str_fini(&head);
        str_fini(&body);
        peer_stop(&s);
    }
}

// The connection will end after the answer, but not before it.
static void the_last_request_of_a_connection_may_run(void **state) {
    (void)state;
    static const char *const texts[] = {HELLO "POST /hold HTTP/1.1\r\n" HOST "\r\n",
                                        HELLO "GET /hold HTTP/1.1\r\n" HOST
                                              "Connection: close\r\n\r\n",
                                        HELLO "GET /hold HTTP/1.0\r\n\r\n"};
    struct peer_server s;
    struct str head = {0}, body = {0};
    peer_start(&s, (struct http_options){0});
    for (int i = 0; i < 3; i++) {
        int fd = peer_connect(&s);
        peer_send(fd, texts[i]);
        WAIT_UNTIL(s.n_held >= i + 1);
        assert_int_equal(peer_ask(&s, HELLO, NULL), 200);
        http_post(s.http, let_go, &s);
        assert_int_equal(peer_answer(fd, &head, &body), 200);
        assert_int_equal(peer_answer(fd, &head, &body), 200);
        assert_string_equal(body.data, "late");
        assert_int_equal(peer_read_all(fd, NULL, PATIENCE), 0);
        close(fd);
    }
    assert_int_equal(s.gone, 0);
    str_fini(&head);
    str_fini(&body);
    peer_stop(&s);
}

static void pipelined_bytes_wait_for_the_running_request(void **state) {
    (void)state;
    struct peer_server s;
    struct str head = {0}, body = {0}, more = {0};
    peer_start(&s, (struct http_options){0});
    int fd = peer_connect(&s);
    peer_send(fd, HOLD);
    WAIT_UNTIL(s.n_held >= 1);
    for (int i = 0; i < 3000; i++)
        str_puts(&more, HELLO);
    peer_send(fd, more.data); // more than is read ahead
    assert_int_equal(peer_ask(&s, HELLO, NULL), 200);
    assert_int_equal(s.handled, 2); // with this one
    http_post(s.http, let_go, &s);
    assert_int_equal(peer_answer(fd, &head, &body), 200);
    assert_string_equal(body.data, "late");
    for (int i = 0; i < 3000; i++)
        assert_int_equal(peer_answer(fd, &head, &body), 200);
    // Garbage waits likewise, and its sender is still seen to go.
    peer_send(fd, HOLD);
    WAIT_UNTIL(s.n_held >= 2);
    WAIT_UNTIL(send(fd, more.data + 1000, more.len - 1000, MSG_DONTWAIT) <= 0);
    vanish(fd); // an orderly end would wait after what the kernel cannot deliver
    WAIT_UNTIL(s.gone >= 1);
    // A little after what is read ahead, and an orderly end.
    fd = peer_connect(&s);
    peer_send(fd, HOLD);
    peer_send_bytes(fd, more.data, 70000);
    WAIT_UNTIL(s.n_held >= 3);
    assert_int_equal(peer_ask(&s, HELLO, NULL), 200);
    assert_int_equal(s.gone, 1);
    close(fd);
    WAIT_UNTIL(s.gone >= 2);
    str_fini(&head);
    str_fini(&body);
    str_fini(&more);
    peer_stop(&s);
}

static void a_slow_reader_holds_the_writer_back(void **state) {
    enum { TURNS = 1000 }; // of the loop
    (void)state;
    struct peer_server s;
    struct str out = {0};
    peer_start(&s, (struct http_options){0});
    int fd = peer_connect(&s);
    peer_send(fd, "GET /flood HTTP/1.1\r\n" HOST "\r\n");
    WAIT_UNTIL(s.peak > EXCHANGE_FULL);
    int calls = s.writable;
    for (int i = 0; i < TURNS; i++)
        peer_counts(&s);
    assert_in_range(s.writable - calls, 0, TURNS / 4); // what the system's buffers take, no more
    assert_true(s.peak > EXCHANGE_FULL && s.peak < EXCHANGE_FULL + 8192);
    assert_int_equal(peer_ask(&s, HELLO, NULL), 200);
    shutdown(fd, SHUT_WR);
    assert_int_equal(peer_read_all(fd, &out, PATIENCE), 0);
    assert_true(out.len > FLOOD && out.len < FLOOD + FLOOD / 100);
    assert_true(s.peak < EXCHANGE_FULL + 8192);
    str_fini(&out);
    close(fd);
    peer_stop(&s);
}

static void a_reader_that_stalls_is_dropped(void **state) {
    (void)state;
    struct peer_server s;
    peer_start(&s, (struct http_options){.stall_ms = 200});
    int fd = peer_connect(&s);
    peer_send(fd, "GET /flood HTTP/1.1\r\n" HOST "\r\n");
    WAIT_UNTIL(s.gone >= 1);
    close(fd);
    peer_stop(&s);
}

enum { LIMIT_S = 1000, STEP_S = 50 };

// Sends text, then a byte more in each STEP_S, and returns how many of these the server let it.
static int drip(const struct peer_server *s, const char *text, struct str *out) {
    int fd = peer_connect(s), steps = 0;
    str_clear(out);
    peer_send(fd, text);
    for (; steps < 10 * LIMIT_S && peer_read_all(fd, out, 20) == 1; steps++) {
        peer_send(fd, "1");
        ahead += STEP_S;
    }
    close(fd);
    return steps;
}

static void slow_requests_end(void **state) {
    enum {
        LEAST = LIMIT_S / STEP_S / 2,
        LIMIT = 10 * LIMIT_S - 1
    }; // the system's clock goes on, too
    struct peer_server s;
    struct str out = {0}, head = {0};
    (void)state;
    peer_start(&s, (struct http_options){.head_ms = LIMIT_S * 1000,
                                         .body_ms = LIMIT_S * 1000,
                                         .idle_ms = LIMIT_S * 1000,
                                         .stall_ms = 40}); // looks often
    assert_in_range(drip(&s, "GET /hello HTTP/1.1\r\nHos", &out), LEAST, LIMIT);
    assert_non_null(strstr(out.data, "HTTP/1.1 408 "));
    assert_in_range(drip(&s, "POST /x HTTP/1.1\r\n" HOST "Content-Length: 1000\r\n\r\n", &out),
                    LEAST, LIMIT);
    assert_non_null(strstr(out.data, "HTTP/1.1 408 "));
    assert_in_range(
        drip(&s, "POST /x HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1;", &out), LEAST,
        LIMIT);
    // Nothing at all, before and after a request.
    for (int i = 0; i < 2; i++) {
        WAIT_UNTIL(peer_counts(&s).connections == 0);
        int fd = peer_connect(&s);
        if (i) {
            peer_send(fd, HELLO);
            assert_int_equal(peer_answer(fd, &head, &out), 200);
        }
        WAIT_UNTIL(peer_counts(&s).connections == 1);
        assert_int_equal(peer_read_all(fd, NULL, 20), 1);
        ahead += LIMIT_S + 1;
        assert_int_equal(peer_read_all(fd, NULL, PATIENCE), 0);
        close(fd);
    }
    str_fini(&out);
    str_fini(&head);
    peer_stop(&s);
}

// A request with a body of n bytes, of which `sent` are sent; the connection is for the caller.
static int send_part(const struct peer_server *s, size_t n, size_t sent) {
    struct str text = {0};
    int fd = peer_connect(s);
    str_printf(&text, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n", n);
    while (sent-- > 0)
        str_putc(&text, 'x');
    peer_send_bytes(fd, text.data, text.len);
    str_fini(&text);
    return fd;
}

static int status_of(int fd) {
    struct str head = {0}, body = {0};
    int status = peer_answer(fd, &head, &body);
    close(fd);
    str_fini(&head);
    str_fini(&body);
    return status;
}

// Bodies that were begun take all the room. Small ones are served all the same, large ones once
// those that do not come have given way.
static void stalled_bodies_are_refused_for_others(void **state) {
    (void)state;
    enum { LARGE = 400000, SMALL = 60000 };
    struct peer_server s;
    struct str out = {0};
    peer_start(&s, (struct http_options){.bodies_bytes = 600000, .body_ms = LIMIT_S * 1000});
    int silent = send_part(&s, LARGE + 1, LARGE);
    WAIT_UNTIL(peer_counts(&s).body_bytes >= LARGE);
    int announced = send_part(&s, LARGE, 1); // takes no room
    assert_int_equal(status_of(send_part(&s, SMALL, SMALL)), 200);
    assert_int_equal(status_of(send_part(&s, LARGE, LARGE)), 503);
    ahead += LIMIT_S / 2;
    assert_int_equal(status_of(send_part(&s, SMALL, SMALL)), 200);
    assert_int_equal(status_of(send_part(&s, LARGE, LARGE)), 200);
    assert_int_equal(peer_read_all(silent, &out, PATIENCE), 0);
    assert_non_null(strstr(out.data, "HTTP/1.1 408 "));
    assert_non_null(strstr(out.data, "while others waited"));
    close(silent);
    close(announced);
    str_fini(&out);
    peer_stop(&s);
}

// A body that came fast at first gets no more time for that.
static void a_fast_beginning_extends_no_timeout(void **state) {
    (void)state;
    struct peer_server s;
    struct str out = {0};
    peer_start(&s, (struct http_options){.body_ms = 300});
    int fd = send_part(&s, 40 << 20, 20 << 20); // at 4 KiB a second that would be 85 minutes
    assert_int_equal(peer_read_all(fd, &out, PATIENCE), 0);
    assert_non_null(strstr(out.data, "HTTP/1.1 408 "));
    close(fd);
    str_fini(&out);
    peer_stop(&s);
}

// One that never closes its side does not keep a connection of ours.
static void the_last_answer_does_not_block_the_end(void **state) {
    (void)state;
    struct peer_server s;
    struct str out = {0};
    peer_start(&s, (struct http_options){0});
    int fd = peer_connect(&s);
    peer_send(fd, "GET /hello HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
    assert_int_equal(peer_read_all(fd, &out, PATIENCE), 0);
    assert_string_equal(out.data + out.len - 5, "hello");
    ahead += 3;
    WAIT_UNTIL(peer_counts(&s).connections == 0);
    close(fd);
    str_fini(&out);
    peer_stop(&s);
}

static void count_one(void *arg) {
    ++*(atomic_int *)arg;
}

struct poster {
    struct http *http;
    atomic_int *count;
};

static void *post_many(void *arg) {
    const struct poster *p = arg;
    for (int i = 0; i < 10000; i++)
        http_post(p->http, count_one, p->count);
    return NULL;
}

static void every_thread_may_post(void **state) {
    (void)state;
    struct peer_server s;
    atomic_int count = 0;
    pthread_t threads[4];
    struct err e = {0};
    struct http_options o = {.host = "127.0.0.1", .handler = NULL};
    assert_int_equal(http_create(&s.http, &o, &e), ERR_USAGE);
    peer_start(&s, (struct http_options){0});
    struct poster p = {s.http, &count};
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, post_many, &p);
    for (int i = 0; i < 4; i++)
        WAIT_JOIN(threads[i], NULL);
    WAIT_UNTIL(count >= 40000);
    // Also what comes last before the end, and nothing after it.
    http_stop(s.http);
    http_post(s.http, count_one, &count);
    WAIT_JOIN(s.thread, NULL);
    assert_true(count == 40000 || count == 40001);
    int last = count;
    assert_int_equal(http_post(s.http, count_one, &count), ERR_STATE);
    assert_int_equal(count, last);
    http_destroy(s.http);
}

static void idle_connections_close_at_the_end(void **state) {
    (void)state;
    struct peer_server s;
    peer_start(&s, (struct http_options){0});
    int idle = peer_connect(&s), used = peer_connect(&s);
    struct str head = {0}, body = {0};
    peer_send(used, HELLO);
    assert_int_equal(peer_answer(used, &head, &body), 200);
    http_stop(s.http);
    assert_int_equal(peer_read_all(idle, NULL, PATIENCE), 0);
    assert_int_equal(peer_read_all(used, NULL, PATIENCE), 0);
    peer_join(&s);
    close(idle);
    close(used);
    str_fini(&head);
    str_fini(&body);
}

// A running exchange hears of the end and has its grace to finish.
static void running_exchanges_may_finish(void **state) {
    (void)state;
    struct peer_server s;
    struct str head = {0}, body = {0};
    peer_start(&s, (struct http_options){.grace_s = 10});
    int fd = peer_connect(&s);
    peer_send(fd, HOLD);
    WAIT_UNTIL(s.n_held >= 1);
    http_stop(s.http);
    WAIT_UNTIL(s.drained >= 1);
    peer_counts(&s); // the loop has turned
    assert_int_equal(s.cut, 0);
    http_post(s.http, let_go, &s);
    assert_int_equal(peer_answer(fd, &head, &body), 200);
    assert_non_null(strstr(head.data, "Connection: close"));
    peer_join(&s); // although the client keeps its side open
    assert_int_equal(s.gone, 0);
    close(fd);
    str_fini(&head);
    str_fini(&body);
}

// What does not finish is cut: it says a last word, and the server ends in time whatever clients
// do.
static void requests_that_do_not_finish_are_cut(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) { // bit 0: in chunks; bit 1: two stops, without grace
        struct peer_server s;
        struct str head = {0}, body = {0};
        peer_start(&s, (struct http_options){.grace_s = kind & 2 ? 10000 : 0.3});
        s.begin_held = kind & 1;
        s.answer_when_cut = true;
        int fd = peer_connect(&s), deaf = peer_connect(&s);
        peer_send(fd, HOLD);
        peer_send(deaf, "GET /flood HTTP/1.1\r\n" HOST "\r\n");
        WAIT_UNTIL(s.handled >= 2);
        http_stop(s.http);
        if (kind & 2)
            http_stop(s.http);
        assert_int_equal(peer_answer(fd, &head, &body), kind & 1 ? 200 : 503);
        assert_string_equal(body.data, kind & 1 ? "last words" : "cut");
        peer_join(&s);
        assert_int_equal(s.gone, 1); // the deaf one
        close(fd);
        close(deaf);
        str_fini(&head);
        str_fini(&body);
    }
}

static struct http *make(const struct http_options *o) {
    struct http *h;
    struct err e = {0};
    assert_int_equal(http_create(&h, o, &e), 0);
    return h;
}

static void dummy(void *arg, struct exchange *x) {
    (void)arg;
    exchange_abort(x);
}

static int try_listen(struct http_options o, char *said) {
    struct err e = {0};
    o.handler = dummy;
    struct http *h = make(&o);
    int rc = http_listen(h, &e);
    http_destroy(h);
    memcpy(said, e.text, sizeof e.text);
    return rc;
}

static void where_it_listens(void **state) {
    (void)state;
    static const char *const keys[] = {"k"};
    char said[512];
    assert_int_equal(try_listen((struct http_options){.host = "0.0.0.0"}, said), ERR_USAGE);
    assert_non_null(strstr(said, "other machines"));
    assert_int_equal(try_listen((struct http_options){.host = "::"}, said), ERR_USAGE);
    assert_int_equal(try_listen((struct http_options){.host = "0.0.0.0", .any_host = true}, said),
                     0);
    assert_int_equal(
        try_listen((struct http_options){.host = "0.0.0.0", .keys = keys, .n_keys = 1}, said), 0);
    assert_int_equal(try_listen((struct http_options){.host = "localhost"}, said), 0);
    assert_int_equal(try_listen((struct http_options){0}, said), ERR_USAGE);
    assert_int_equal(try_listen((struct http_options){.host = ""}, said), ERR_USAGE);
    assert_int_equal(try_listen((struct http_options){.host = "no.such.host.invalid"}, said),
                     ERR_IO);
    assert_int_equal(try_listen((struct http_options){.host = "127.0.0.1", .port = 70000}, said),
                     ERR_USAGE);
    struct peer_server s;
    peer_start(&s, (struct http_options){0});
    assert_int_equal(try_listen((struct http_options){.host = "127.0.0.1", .port = s.port}, said),
                     ERR_IO);
    assert_non_null(strstr(said, "another program"));
    peer_stop(&s);
}

static int connect_unix(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    close(fd);
    return -1;
}

static void a_path_to_listen_on(void **state) {
    (void)state;
    char path[64], said[512];
    struct peer_server s;
    struct str head = {0}, body = {0};
    struct stat info;
    snprintf(path, sizeof path, "/tmp/coppice-test-http-%d", (int)getpid());
    // What a server that was killed leaves behind: a socket on which no process listens.
    int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    assert_int_equal(bind(dead, (struct sockaddr *)&a, sizeof a), 0);
    close(dead);
    peer_start(&s, (struct http_options){.unix_path = path});
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(try_listen((struct http_options){.unix_path = path}, said), ERR_STATE);
    int fd = connect_unix(path);
    peer_send(fd, HELLO); // the Host header has no meaning here
    assert_int_equal(peer_answer(fd, &head, &body), 200);
    peer_send(fd, "GET /hold HTTP/1.1\r\nHost: anything\r\n\r\n");
    WAIT_UNTIL(s.n_held >= 1);
    shutdown(fd, SHUT_WR);
    peer_counts(&s); // the loop has turned
    assert_int_equal(s.gone, 0);
    close(fd);
    WAIT_UNTIL(s.gone >= 1);
    peer_stop(&s);
    assert_int_equal(stat(path, &info), -1);
    // A file that is no socket stays as it is.
    FILE *f = fopen(path, "w");
    fclose(f);
    assert_int_equal(try_listen((struct http_options){.unix_path = path}, said), ERR_USAGE);
    assert_int_equal(stat(path, &info), 0);
    unlink(path);
    str_fini(&head);
    str_fini(&body);
}

static void idle_connections_are_closed_for_new_ones(void **state) {
    (void)state;
    struct peer_server s;
    int fds[10];
    peer_start(&s, (struct http_options){.connections = 5});
    for (int i = 0; i < 10; i++) {
        fds[i] = peer_connect(&s);
        peer_send(fds[i], HOLD);
        if (i < 5)
            WAIT_UNTIL(s.n_held >= i + 1);
    }
    for (int i = 5; i < 10; i++)
        assert_int_not_equal(peer_read_all(fds[i], NULL, PATIENCE), 1); // it ends
    assert_int_equal(s.n_held, 5); // none is closed for the others
    for (int i = 0; i < 10; i++)
        close(fds[i]);
    WAIT_UNTIL(s.gone >= 5);
    for (int i = 0; i < 10; i++) { // the idle go first
        fds[i] = peer_connect(&s);
        assert_int_equal(peer_ask(&s, HELLO, NULL), 200);
    }
    for (int i = 0; i < 10; i++)
        close(fds[i]);
    peer_stop(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_that_goes_is_noticed),
        cmocka_unit_test(closed_connections_are_freed_at_once),
        cmocka_unit_test(requests_of_disconnected_clients_are_not_begun),
        cmocka_unit_test(many_new_connections_do_not_starve_others),
        cmocka_unit_test(many_active_connections_do_not_starve_others),
        cmocka_unit_test(a_half_closed_client_is_served),
        cmocka_unit_test(a_half_closed_client_that_goes_later_is_noticed),
        cmocka_unit_test(a_half_closed_client_waits_long),
        cmocka_unit_test(the_last_request_of_a_connection_may_run),
        cmocka_unit_test(pipelined_bytes_wait_for_the_running_request),
        cmocka_unit_test(a_slow_reader_holds_the_writer_back),
        cmocka_unit_test(a_reader_that_stalls_is_dropped),
        cmocka_unit_test(slow_requests_end),
        cmocka_unit_test(stalled_bodies_are_refused_for_others),
        cmocka_unit_test(a_fast_beginning_extends_no_timeout),
        cmocka_unit_test(the_last_answer_does_not_block_the_end),
        cmocka_unit_test(every_thread_may_post),
        cmocka_unit_test(idle_connections_close_at_the_end),
        cmocka_unit_test(running_exchanges_may_finish),
        cmocka_unit_test(requests_that_do_not_finish_are_cut),
        cmocka_unit_test(where_it_listens),
        cmocka_unit_test(a_path_to_listen_on),
        cmocka_unit_test(idle_connections_are_closed_for_new_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
