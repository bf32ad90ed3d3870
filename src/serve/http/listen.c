// SPDX-License-Identifier: Apache-2.0
// Where the server listens: every address of a host name, and a path. A dead socket file that an
// earlier server left is replaced, a living one is not.
#include "serve/http/impl.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,
    ACCEPTS = 16 // of one listener before others have their turn
};

static bool is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

// libevent's own listener accepts as long as clients connect, which may be for ever.
static void on_connecting(evutil_socket_t listener, short what, void *arg) {
    struct http *h = arg;
    (void)what;
    for (int i = 0; i < ACCEPTS && !h->paused; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t n = sizeof peer;
        int fd = accept4(listener, (struct sockaddr *)&peer, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            h->accepted(h, fd, (struct sockaddr *)&peer, n);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            h->accept_failed(h);
        else if (errno != ECONNABORTED && errno != EINTR) // one client's trouble
            return;
    }
}

static int add_listener(struct http *h, int fd, struct err *e) {
    struct event *l = event_new(h->base, fd, EV_READ | EV_PERSIST, on_connecting, h);
    if (!l || event_add(l, NULL)) {
        if (l)
            event_free(l);
        close(fd);
        return err_set(e, ERR_MEMORY, "out of memory for a listening socket");
    }
    h->listeners[h->n_listeners++] = l;
    return 0;
}

// A listening socket on a, NULL-free; -1 with errno.
static int open_tcp(const struct addrinfo *a) {
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static void set_port(struct sockaddr *a, int port) {
    if (a->sa_family == AF_INET)
        ((struct sockaddr_in *)(void *)a)->sin_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in6 *)(void *)a)->sin6_port = htons((uint16_t)port);
}

// Writes the address that fd has got and returns its port.
static int note_address(struct http *h, int fd) {
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    char host[64] = "?", port[16] = "0";
    getsockname(fd, (struct sockaddr *)&a, &len);
    getnameinfo((struct sockaddr *)&a, len, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    bool six = a.ss_family == AF_INET6;
    snprintf(h->address[h->n_listeners], sizeof *h->address, "http://%s%s%s:%s", six ? "[" : "",
             host, six ? "]" : "", port);
    return ntohs(six ? ((struct sockaddr_in6 *)(void *)&a)->sin6_port
                     : ((struct sockaddr_in *)(void *)&a)->sin_port);
}

static int resolve(const struct http *h, struct addrinfo **found, struct err *e) {
    char host[256], port[16];
    size_t n = strlen(h->o.host);
    bool bracketed = n > 2 && h->o.host[0] == '[' && h->o.host[n - 1] == ']';
    if (n >= sizeof host || n == 0)
        return err_set(e, ERR_USAGE, "the host to listen on is %s",
                       n ? "too long a name" : "empty");
    if (h->o.port < 0 || h->o.port > 65535)
        return err_set(e, ERR_USAGE, "%d is no port; ports are 0 (any free one) to 65535",
                       h->o.port);
    snprintf(host, sizeof host, "%.*s", (int)(bracketed ? n - 2 : n), h->o.host + bracketed);
    snprintf(port, sizeof port, "%d", h->o.port);
    bool own = strcasecmp(host, "localhost") == 0; // whatever the system knows (RFC 6761, 6.3)
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | (own ? 0 : AI_PASSIVE)};
    int code = getaddrinfo(own ? NULL : host, port, &hints, found);
    if (code)
        return err_set(e, ERR_IO, "cannot find the address of '%s': %s", host, gai_strerror(code));
    for (struct addrinfo *a = *found; a; a = a->ai_next)
        if (!is_loopback(a->ai_addr) && h->o.n_keys == 0 && !h->o.any_host) {
            freeaddrinfo(*found);
            return err_set(
                e, ERR_USAGE,
                "'%s' can be reached from other machines, and without a key anybody there "
                "could use this server; give it a key (--api-key-file), or let anybody in "
                "(--public)",
                host);
        }
    return 0;
}

static int listen_tcp(struct http *h, struct err *e) {
    struct addrinfo *found = NULL;
    int rc = resolve(h, &found, e), port = h->o.port, why = 0, bound = 0;
    if (rc)
        return rc;
    int most = HTTP_LISTENERS - 1; // one is left for a path
    for (struct addrinfo *a = found; a && !rc && h->n_listeners < most; a = a->ai_next) {
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
            continue;
        set_port(a->ai_addr, port);
        int fd = open_tcp(a);
        if (fd < 0 && errno == EADDRINUSE)
            rc = err_set(e, ERR_IO, "cannot listen on %s port %d: another program does", h->o.host,
                         port);
        if (fd < 0) {
            why = errno;
            continue;
        }
        bound++;
        port = note_address(h, fd);
        rc = add_listener(h, fd, e);
    }
    freeaddrinfo(found);
    if (!rc && bound == 0)
        rc = err_set(e, ERR_IO, "cannot listen on %s port %d: %s", h->o.host, port, strerror(why));
    return rc;
}

// Makes the path free where a server that is gone has left its socket.
static int clear_path(const struct sockaddr_un *a, struct err *e) {
    struct stat s;
    if (lstat(a->sun_path, &s))
        return 0;
    if (!S_ISSOCK(s.st_mode))
        return err_set(e, ERR_USAGE, "%s exists and is no socket; choose another path",
                       a->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(e, ERR_IO, "cannot make a socket: %s", strerror(errno));
    int failed = connect(fd, (const struct sockaddr *)a, sizeof *a), why = errno;
    close(fd);
    if (!failed || why != ECONNREFUSED)
        return err_set(e, ERR_STATE, "another program listens on %s", a->sun_path);
    if (unlink(a->sun_path))
        return err_set(e, ERR_IO, "cannot replace %s: %s", a->sun_path, strerror(errno));
    return 0;
}

static int listen_unix(struct http *h, struct err *e) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(h->o.unix_path) >= sizeof a.sun_path || !*h->o.unix_path)
        return err_set(e, ERR_USAGE, "the path of a socket has 1 to %zu bytes",
                       sizeof a.sun_path - 1);
    memcpy(a.sun_path, h->o.unix_path, strlen(h->o.unix_path));
    int rc = clear_path(&a, e);
    if (rc)
        return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    // The mode is set before anybody can connect, which needs listen.
    if (fd < 0 || fchmod(fd, 0600) || bind(fd, (const struct sockaddr *)&a, sizeof a) ||
        chmod(a.sun_path, 0600) || listen(fd, BACKLOG)) {
        rc = err_set(e, ERR_IO, "cannot listen on %s: %s", a.sun_path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    struct stat s;
    if (stat(a.sun_path, &s) == 0) {
        h->unix_device = s.st_dev;
        h->unix_inode = s.st_ino;
    }
    snprintf(h->address[h->n_listeners], sizeof *h->address, "unix:%s", a.sun_path);
    return add_listener(h, fd, e);
}

int listen_all(struct http *h, listen_accepted_fn *accepted, void (*failed)(struct http *),
               struct err *e) {
    h->accepted = accepted;
    h->accept_failed = failed;
    if (!h->o.host && !h->o.unix_path)
        return err_set(e, ERR_USAGE, "neither a host nor the path of a socket to listen on");
    int rc = h->o.host ? listen_tcp(h, e) : 0;
    if (!rc && h->o.unix_path)
        rc = listen_unix(h, e);
    if (rc)
        listen_end(h);
    return rc;
}

void listen_pause(struct http *h, bool pause) {
    h->paused = pause;
    for (int i = 0; i < h->n_listeners; i++)
        pause ? event_del(h->listeners[i]) : event_add(h->listeners[i], NULL);
}

void listen_end(struct http *h) {
    struct stat s;
    for (int i = 0; i < h->n_listeners; i++) {
        int fd = event_get_fd(h->listeners[i]);
        event_free(h->listeners[i]);
        close(fd);
    }
    h->n_listeners = 0;
    // Another server may have taken the path over meanwhile; then it is not ours to remove.
    if (h->unix_inode && stat(h->o.unix_path, &s) == 0 && s.st_dev == h->unix_device &&
        s.st_ino == h->unix_inode)
        unlink(h->o.unix_path);
    h->unix_inode = 0;
}
