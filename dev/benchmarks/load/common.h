// SPDX-License-Identifier: Apache-2.0
/* What the load generator and its echo server share: buffers, frames from a file, remoting and HTTP messages. */
#ifndef COMMON_H
#define COMMON_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define OPAQUE_DIGITS 9
#define OPAQUE_KEY "\"opaque\":"
#define CODE_KEY "\"code\":"

enum protocol { REMOTING, HTTP };

static volatile sig_atomic_t stopping;

static void on_signal(int number) {
    (void)number;
    stopping = 1;
}

static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(2);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static uint32_t be32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

/* --- a buffer that is filled at its end and emptied at its start --- */

struct buffer {
    char *data;
    size_t start, end, size;
};

static char *room(struct buffer *b, size_t wanted) {
    if (b->start == b->end) b->start = b->end = 0;
    if (b->end + wanted > b->size && b->start) {
        memmove(b->data, b->data + b->start, b->end - b->start);
        b->end -= b->start;
        b->start = 0;
    }
    if (b->end + wanted > b->size) {
        b->size = b->end + wanted + b->size;
        if (!(b->data = realloc(b->data, b->size))) die("out of memory");
    }
    return b->data + b->end;
}

/* --- messages --- */

struct frame {
    char *data;
    size_t size;
    size_t opaque_at; /* of its nine digits; 0 in HTTP */
};

/* A file of (uint32 size, bytes)*, big-endian. */
static struct frame *read_frames(const char *path, enum protocol protocol, size_t *count) {
    FILE *file = fopen(path, "rb");
    if (!file) die("cannot read %s: %s", path, strerror(errno));
    struct frame *frames = NULL;
    char head[4];
    *count = 0;
    while (fread(head, 1, 4, file) == 4) {
        struct frame f = {.size = be32(head)};
        if (!(f.data = malloc(f.size + 1)) || fread(f.data, 1, f.size, file) != f.size) die("%s is torn", path);
        f.data[f.size] = 0;
        if (protocol == REMOTING) {
            size_t header = f.size > 8 ? be32(f.data + 4) & 0xffffff : 0;
            char *key = header ? memmem(f.data + 8, header, OPAQUE_KEY, strlen(OPAQUE_KEY)) : NULL;
            if (!key || be32(f.data) + 4 != f.size || f.data[4]) die("%s: frame %zu has no JSON opaque", path, *count);
            char *digits = key + strlen(OPAQUE_KEY);
            if (strspn(digits, "0123456789") != OPAQUE_DIGITS) die("%s: an opaque must have nine digits", path);
            f.opaque_at = (size_t)(digits - f.data);
        }
        frames = realloc(frames, (*count + 1) * sizeof *frames);
        frames[(*count)++] = f;
    }
    fclose(file);
    if (!*count) die("%s holds no frames", path);
    return frames;
}

static void put_frame(struct buffer *b, const struct frame *f, uint32_t opaque) {
    char *at = room(b, f->size);
    memcpy(at, f->data, f->size);
    if (f->opaque_at)
        for (int i = OPAQUE_DIGITS - 1; i >= 0; i--, opaque /= 10) at[f->opaque_at + (size_t)i] = (char)('0' + opaque % 10);
    b->end += f->size;
}

struct message {
    size_t size; /* of the whole */
    int ok;      /* the expected code, status 200 */
    uint32_t opaque;
    const char *body;
    size_t body_size;
};

static long expected_code; /* of a remoting answer */

static long number_after(const char *at, size_t size, const char *key) {
    const char *found = memmem(at, size, key, strlen(key));
    return found ? strtol(found + strlen(key), NULL, 10) : -1;
}

/* Take a message off the start of data: 1 when it is whole, 0 when more is needed, -1 when it is none. Of a remoting
   message whose header is there already everything but the rest of the body is filled in.
   data[size] must be readable; a JSON header has code and opaque before any text a user could choose. */
static int parse_remoting(const char *data, size_t size, struct message *m) {
    if (size < 8) return 0;
    size_t length = be32(data), header = be32(data + 4) & 0xffffff;
    m->body = NULL;
    if (header + 4 > length || data[4] || length > 1u << 30) return -1;
    m->size = length + 4;
    if (size < 8 + header) return 0;
    m->ok = number_after(data + 8, header, CODE_KEY) == expected_code;
    m->opaque = (uint32_t)number_after(data + 8, header, OPAQUE_KEY);
    m->body = data + 8 + header;
    m->body_size = length - 4 - header;
    return size >= m->size;
}

static int parse_http(const char *data, size_t size, struct message *m) {
    const char *end = memmem(data, size, "\r\n\r\n", 4);
    if (!end) return 0;
    size_t head = (size_t)(end - data) + 4;
    m->body_size = 0;
    int sized = 0;
    for (const char *line = memchr(data, '\n', head); line && line + 1 < end; line = memchr(line, '\n', head - (size_t)(line - data))) {
        line++;
        if (strncasecmp(line, "content-length:", 15) == 0) {
            m->body_size = strtoul(line + 15, NULL, 10);
            sized = 1;
        }
    }
    if (data[0] == 'H' && !sized) return -1; /* an answer of unknown length, such as a chunked one */
    m->size = head + m->body_size;
    m->ok = memcmp(data, "HTTP/1.1 200", 12) == 0;
    m->opaque = 0;
    m->body = data + head;
    return size >= m->size;
}

static void watch(int epoll, int op, int fd, uint32_t events, void *who) {
    struct epoll_event event = {.events = events, .data.ptr = who};
    if (epoll_ctl(epoll, op, fd, &event)) die("epoll: %s", strerror(errno));
}
#endif
