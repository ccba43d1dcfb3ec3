// SPDX-License-Identifier: Apache-2.0
/* The least that a server can do: read, count messages, answer each with the same bytes. Shows the generator's ceiling. */
#ifndef ECHO_H
#define ECHO_H
#include "common.h"
#include "wire.h"

struct peer {
    struct wire wire;
    struct buffer in, out;
};

static void answer(struct peer *p, enum protocol protocol, const struct frame *reply) {
    struct message m;
    int found = 0;
    for (;;) {
        char *at = room(&p->in, 65536);
        ssize_t n = take_in(&p->wire, at, p->in.size - p->in.end, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            close_wire(&p->wire);
            free(p->in.data);
            free(p->out.data);
            free(p);
            return;
        }
        if (n < 0) break;
        p->in.end += (size_t)n;
        if (p->in.end < p->in.size && !is_encrypted(&p->wire)) break; /* a record at a time */
    }
    while (p->in.start < p->in.end) {
        const char *data = p->in.data + p->in.start;
        size_t size = p->in.end - p->in.start;
        found = protocol == HTTP ? parse_http(data, size, &m) : parse_remoting(data, size, &m);
        if (found <= 0) break;
        put_frame(&p->out, reply, m.opaque);
        p->in.start += m.size;
    }
    if (found < 0) die("echo: not a message");
    while (flush(&p->wire, &p->out) == 1) usleep(50); /* the generator reads all the time */
}

static int echo(int port, enum protocol protocol, const struct frame *reply) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1024))
        die("echo: cannot listen on port %d: %s", port, strerror(errno));
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    watch(epoll, EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
    struct epoll_event events[256];
    while (!stopping) {
        int n = epoll_wait(epoll, events, 256, 200);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr) {
                answer(events[i].data.ptr, protocol, reply);
                continue;
            }
            int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            if (fd < 0) continue;
            int large = 1 << 20; /* a large answer goes out in one piece */
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &large, sizeof large);
            struct peer *p = calloc(1, sizeof *p);
            if (!open_wire(&p->wire, fd, 1)) { /* somebody only looked whether we listen */
                close_wire(&p->wire);
                free(p);
                continue;
            }
            fcntl(fd, F_SETFL, O_NONBLOCK);
            watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, p);
        }
    }
    return 0;
}
#endif
