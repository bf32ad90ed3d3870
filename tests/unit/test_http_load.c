// SPDX-License-Identifier: Apache-2.0
// What the HTTP server costs: memory of idle connections, also of those that have had large
// requests, and time of requests on kept connections and of streams. It prints what it measures;
// only the memory has a bound that makes it fail.
#include "test.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_peer.h"

#ifdef COPPICE_CHECKED // a sanitizer holds freed memory back
enum { CHECKED = 1, REQUESTS = 500 };
#else
enum { CHECKED = 0, REQUESTS = 5000 };
#endif
enum { IDLE = 1000, CLIENTS = 8, IDLE_BYTES = 64 << 10 };

#define HELLO "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"

static size_t resident(void) {
    size_t pages = 0, all;
    malloc_trim(0);
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu %zu", &all, &pages), 2);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void idle_connections_are_small(void **state) {
    (void)state;
    struct peer_server s;
    struct str head = {0}, body = {0}, large = {0};
    static int fds[IDLE];
    peer_start(&s, (struct http_options){0});
    str_puts(&large, "POST /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n");
    for (int i = 0; i < 200000; i++)
        str_putc(&large, 'x');
    size_t before = resident();
    for (int i = 0; i < IDLE; i++)
        fds[i] = peer_connect(&s);
    peer_ask(&s, HELLO, NULL);
    size_t fresh = resident() - before;
    for (int i = 0; i < IDLE; i++) {
        peer_send(fds[i], large.data);
        assert_int_equal(peer_answer(fds[i], &head, &body), 200);
    }
    size_t used = resident() - before;
    printf("%d idle connections: %zu bytes each when new, %zu after a request of 200 kB\n", IDLE,
           fresh / IDLE, used / IDLE);
    assert_in_range((int)peer_counts(&s).connections, IDLE, IDLE + 1);
    assert_true(CHECKED || (fresh / IDLE < IDLE_BYTES && used / IDLE < IDLE_BYTES));
    for (int i = 0; i < IDLE; i++)
        close(fds[i]);
    str_fini(&head);
    str_fini(&body);
    str_fini(&large);
    peer_stop(&s);
}

static void *ask_many(void *arg) {
    struct peer_server *s = arg;
    char buffer[4096];
    int fd = peer_connect(s), answered = 0;
    for (; answered < REQUESTS; answered++) {
        send(fd, HELLO, sizeof HELLO - 1, MSG_NOSIGNAL);
        ssize_t n = recv(fd, buffer, sizeof buffer, 0); // an answer is one packet
        if (n < 5 || memcmp(buffer + n - 5, "hello", 5) != 0)
            break;
    }
    close(fd);
    return answered == REQUESTS ? s : NULL;
}

static void requests_a_second(void **state) {
    (void)state;
    struct peer_server s;
    pthread_t threads[CLIENTS];
    peer_start(&s, (struct http_options){0});
    double start = peer_now();
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_many, &s), 0);
    for (int i = 0; i < CLIENTS; i++) {
        void *good;
        WAIT_JOIN(threads[i], &good);
        assert_non_null(good);
    }
    printf("%d clients, each on one connection: %.0f requests/s\n", CLIENTS,
           CLIENTS * REQUESTS / (peer_now() - start) * 1e3);
    start = peer_now();
    for (int i = 0; i < REQUESTS; i++)
        assert_int_equal(peer_ask(&s, HELLO, NULL), 200);
    printf("one client, a new connection each: %.0f requests/s\n",
           REQUESTS / (peer_now() - start) * 1e3);
    peer_stop(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_connections_are_small),
        cmocka_unit_test(requests_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
