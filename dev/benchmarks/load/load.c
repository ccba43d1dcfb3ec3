// SPDX-License-Identifier: Apache-2.0
/* A load generator for remoting frames and HTTP keep-alive requests: one thread, epoll.
 *
 *   load run  --port P --protocol remoting|http --frames FILE [--host 127.0.0.1] [--connections N] [--depth D]
 *             [--seconds S] [--warmup S] [--rate R] [--own] [--once] [--hold] [--check bytes|length|code] [--code C] [--tls]
 *   load echo --port P --protocol remoting|http --frames FILE          answers everything with the file's first frame;
 *             [--cert FILE --key FILE]                               over TLS
 *
 * Each connection keeps D requests under way: an answer sends the next. With --rate, R requests a second are sent at
 * their times whatever the answers do, and a latency counts from the time at which its request was due (so a server that
 * stalls cannot hide it). Frames are taken in turn; with --own a connection keeps to its own frame (connection i to frame
 * i mod count), as brokers do. With --once every frame is sent once and that is all; connection i takes i, i+N, ...
 * With --hold the connections stay open after the result, until SIGTERM: a NameServer takes the end of a connection for
 * the end of the broker that registered over it.
 *
 * An answer must have the code C, or 0 (status 200), and the opaque of a request that is under way on its connection.
 * The first answer to a frame is kept: later ones must have a body of its length, and every 64th the same bytes.
 *
 * With --tls every connection is encrypted, and whatever certificate the server shows is taken. The handshakes are over
 * before anything is measured.
 *
 * One JSON object on standard output, also after SIGTERM. Exit status 0, 2 when it cannot run, 3 when an answer was wrong
 * or a connection was lost.
 */
#include "common.h"
#include "echo.h"
#include "histogram.h"
#include "wire.h"

#define OPAQUE_BASE 100000000u
#define SEQUENCES 10000u
#define COMPARE_EVERY 64
#define MAX_WINDOWS 3600
#define LARGE_BODY 16384 /* from here on, the rest of a body that is not compared is dropped in the kernel, uncopied */
#define HEAD_BYTES 1024

enum check { CODE, LENGTH, BYTES };

struct slot { /* one request under way */
    uint64_t due_ns;
    uint32_t sequence;
    uint32_t frame;
    int busy;
};

struct connection {
    struct wire wire;
    int index, waiting_to_write;
    uint32_t turn, oldest; /* HTTP answers come in the order of the requests: slots are a ring */
    struct buffer in, out;
    struct slot *slots;
    struct message dropped; /* the answer whose body is being dropped, and how much of it is still to come */
    size_t to_drop;
};

struct first_answer {
    char *body;
    size_t size, seen;
    int known;
};

static struct {
    const char *host, *frames, *certificate, *key;
    int port, connections, depth, own, once, hold, tls;
    enum protocol protocol;
    enum check check;
    double seconds, warmup, rate;
} options = {.host = "127.0.0.1", .connections = 1, .depth = 1, .check = BYTES, .seconds = 1};

static struct frame *frames;
static size_t frame_count, sent, answered, lost, wrong_code, wrong_opaque, wrong_body, bytes_in;
static struct connection *connections;
static struct first_answer *firsts;
static struct histogram latencies;
static struct { uint64_t count, max_ns; } windows[MAX_WINDOWS];
static uint64_t measuring_from_ns;
static int epoll, open_connections, large_bodies;

static void lose(struct connection *c) {
    for (int i = 0; i < options.depth; i++) lost += (size_t)c->slots[i].busy;
    close_wire(&c->wire);
    open_connections--;
}

static int next_frame(struct connection *c) {
    if (options.once) {
        size_t next = (size_t)c->index + (size_t)c->turn * (size_t)options.connections;
        if (next >= frame_count) return -1;
        c->turn++;
        return (int)next;
    }
    if (options.own) return c->index % (int)frame_count;
    c->turn++;
    return (int)(((size_t)c->index * 7919 + c->turn) % frame_count);
}

static void ask(struct connection *c, uint32_t slot, uint64_t due_ns) {
    struct slot *s = &c->slots[slot];
    int frame = next_frame(c);
    s->busy = frame >= 0;
    if (!s->busy) return;
    s->frame = (uint32_t)frame;
    s->due_ns = due_ns;
    s->sequence = (s->sequence + 1) % SEQUENCES;
    uint32_t number = (uint32_t)(c->index * options.depth) + slot;
    put_frame(&c->out, &frames[frame], OPAQUE_BASE + number * SEQUENCES + s->sequence);
    sent++;
}

static void push(struct connection *c) {
    int left = flush(&c->wire, &c->out);
    if (left < 0) {
        lose(c);
    } else if (left != c->waiting_to_write) {
        c->waiting_to_write = left;
        watch(epoll, EPOLL_CTL_MOD, c->wire.fd, left ? EPOLLIN | EPOLLOUT : EPOLLIN, c);
    }
}

static void check(const struct slot *s, const struct message *m) {
    if (!m->ok) {
        wrong_code++;
        return;
    }
    struct first_answer *first = &firsts[s->frame];
    if (!first->known) {
        first->known = 1;
        first->size = m->body_size;
        first->body = malloc(m->body_size + 1);
        memcpy(first->body, m->body, m->body_size);
        if (m->body_size >= LARGE_BODY && options.protocol == REMOTING && !options.tls) large_bodies = 1;
    } else if (options.check >= LENGTH && first->size != m->body_size) {
        wrong_body++;
    } else if (options.check == BYTES && ++first->seen >= COMPARE_EVERY && m->body) {
        /* A body that was dropped cannot be looked at: then the next one is. */
        first->seen = 0;
        if (memcmp(first->body, m->body, first->size)) wrong_body++;
    }
}

/* The slot of an answer in remoting, or -1 when it belongs to no request under way. */
static int slot_of(const struct connection *c, const struct message *m) {
    uint32_t slot = (m->opaque - OPAQUE_BASE) / SEQUENCES - (uint32_t)(c->index * options.depth);
    if (slot >= (uint32_t)options.depth || c->slots[slot].sequence != (m->opaque - OPAQUE_BASE) % SEQUENCES) return -1;
    return (int)slot;
}

/* Whether nobody will look at this body. */
static int may_drop(const struct connection *c, const struct message *m) {
    int slot = m->body && m->ok && !options.tls ? slot_of(c, m) : -1;
    if (slot < 0) return 0;
    const struct first_answer *first = &firsts[c->slots[slot].frame];
    return first->known && m->body_size >= LARGE_BODY && first->size == m->body_size &&
           (options.check != BYTES || first->seen + 1 < COMPARE_EVERY);
}

static void take(struct connection *c, const struct message *m, uint64_t now) {
    uint32_t slot = c->oldest;
    if (options.protocol == REMOTING) {
        int found = slot_of(c, m);
        if (found < 0) {
            wrong_opaque++;
            return;
        }
        slot = (uint32_t)found;
    }
    struct slot *s = &c->slots[slot];
    if (!s->busy) {
        wrong_opaque++;
        return;
    }
    check(s, m);
    s->busy = 0;
    c->oldest = (slot + 1) % (uint32_t)options.depth;
    answered++;
    if (now >= measuring_from_ns) {
        uint64_t took = now > s->due_ns ? now - s->due_ns : 0;
        size_t window = (now - measuring_from_ns) / 1000000000u;
        record(&latencies, took);
        bytes_in += m->size;
        if (window < MAX_WINDOWS) {
            windows[window].count++;
            if (took > windows[window].max_ns) windows[window].max_ns = took;
        }
    }
    if (!options.rate) ask(c, slot, now);
}

static void receive(struct connection *c) {
    for (;;) {
        char *at = room(&c->in, 131072);
        size_t wanted = c->in.size - c->in.end - 1;
        if (c->to_drop) wanted = c->to_drop;
        else if (large_bodies && c->in.start == c->in.end) wanted = HEAD_BYTES;
        ssize_t n = take_in(&c->wire, at, wanted, c->to_drop ? MSG_TRUNC : 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            lose(c);
            return;
        }
        if (n < 0) break;
        if (c->to_drop) {
            c->to_drop -= (size_t)n;
            if (!c->to_drop) take(c, &c->dropped, now_ns());
            continue;
        }
        c->in.end += (size_t)n;
        c->in.data[c->in.end] = 0;
        uint64_t now = now_ns();
        while (c->in.start < c->in.end) {
            struct message m;
            const char *data = c->in.data + c->in.start;
            size_t size = c->in.end - c->in.start;
            int whole = options.protocol == HTTP ? parse_http(data, size, &m) : parse_remoting(data, size, &m);
            if (whole < 0) die("port %d answered with bytes that are no answer", options.port);
            if (!whole && options.protocol == REMOTING && size >= 8 && may_drop(c, &m)) {
                c->dropped = m;
                c->dropped.body = NULL;
                c->to_drop = m.size - size;
                c->in.start = c->in.end;
            }
            if (!whole) break;
            take(c, &m, now);
            c->in.start += m.size;
        }
        if ((size_t)n < wanted && !is_encrypted(&c->wire)) break; /* TLS comes a record at a time */
    }
    if (c->out.start < c->out.end && !c->waiting_to_write) push(c);
}

static void open_all(void) {
    connections = calloc((size_t)options.connections, sizeof *connections);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    if (inet_pton(AF_INET, options.host, &address.sin_addr) != 1) die("%s is no IPv4 address", options.host);
    int on = 1;
    for (int i = 0; i < options.connections; i++) {
        struct connection *c = &connections[i];
        c->index = i;
        c->slots = calloc((size_t)options.depth, sizeof *c->slots);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address))
            die("cannot connect to %s:%d: %s", options.host, options.port, strerror(errno));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (!open_wire(&c->wire, fd, 0)) die("no TLS handshake with %s:%d", options.host, options.port);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, c);
        open_connections++;
    }
}

/* Send what is due by now, on the next connections that have a free slot; returns when the next one is due. */
static uint64_t send_due(uint64_t begin_ns, uint64_t *number, int *next) {
    for (;;) {
        uint64_t due = begin_ns + (uint64_t)((double)*number * 1e9 / options.rate);
        if (due > now_ns()) return due;
        struct connection *c = NULL;
        uint32_t slot = 0;
        for (int tried = 0; tried < options.connections && !c; tried++) {
            struct connection *candidate = &connections[*next];
            *next = (*next + 1) % options.connections;
            if (candidate->wire.fd < 0) continue;
            for (uint32_t s = 0; s < (uint32_t)options.depth && !c; s++) {
                uint32_t in_order = (candidate->oldest + s) % (uint32_t)options.depth;
                if (!candidate->slots[in_order].busy) c = candidate, slot = in_order;
            }
        }
        if (!c) return due + 100000000u; /* an answer frees a slot and wakes us */
        ask(c, slot, due);
        (*number)++;
        push(c);
    }
}

static void print_result(double seconds, double cpu) {
    printf("{\"requests\":%lu,\"seconds\":%.6f,\"perSecond\":%.1f,", (unsigned long)latencies.total, seconds,
           (double)latencies.total / seconds);
    printf("\"sent\":%zu,\"answered\":%zu,\"lost\":%zu,\"wrongCode\":%zu,\"wrongOpaque\":%zu,\"wrongBody\":%zu,", sent, answered,
           lost, wrong_code, wrong_opaque, wrong_body);
    static const struct { const char *name; double share; } shares[] = {
        {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1.0}};
    for (size_t i = 0; i < 5; i++) printf("\"%sUs\":%.1f,", shares[i].name, (double)percentile(&latencies, shares[i].share) / 1e3);
    printf("\"meanUs\":%.1f,", latencies.total ? (double)latencies.sum / (double)latencies.total / 1e3 : 0.0);
    printf("\"bytesIn\":%zu,\"bodyBytes\":%zu,\"cpuSeconds\":%.3f,\"windows\":[", bytes_in, firsts[0].size, cpu);
    for (size_t i = 0; i < MAX_WINDOWS && (double)i < seconds; i++)
        printf("%s[%lu,%.1f]", i ? "," : "", (unsigned long)windows[i].count, (double)windows[i].max_ns / 1e3);
    printf("]}\n");
}

static int run(void) {
    if ((uint64_t)options.connections * (uint64_t)options.depth * SEQUENCES > 899999999u) die("too many slots");
    if (options.once) options.rate = options.warmup = 0;
    firsts = calloc(frame_count, sizeof *firsts);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    open_all();
    if (options.rate) watch(epoll, EPOLL_CTL_ADD, timer, EPOLLIN, NULL);
    uint64_t begin = now_ns(), end, number = 0;
    int next = 0;
    measuring_from_ns = begin + (uint64_t)(options.warmup * 1e9);
    end = measuring_from_ns + (uint64_t)(options.seconds * 1e9);
    double cpu = cpu_seconds();
    int warm = 0;
    if (!options.rate)
        for (int i = 0; i < options.connections; i++) {
            for (uint32_t s = 0; s < (uint32_t)options.depth; s++) ask(&connections[i], s, now_ns());
            push(&connections[i]);
        }
    struct epoll_event events[256];
    uint64_t now = begin;
    while (!stopping && open_connections) {
        if (options.rate) {
            uint64_t due = send_due(begin, &number, &next);
            struct itimerspec at = {.it_value = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)}};
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
        }
        int n = epoll_wait(epoll, events, 256, 100);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c || c->wire.fd < 0) continue;
            if (events[i].events & EPOLLOUT) push(c);
            if (c->wire.fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(c);
        }
        now = now_ns();
        if (!warm && now >= measuring_from_ns) warm = 1, cpu = cpu_seconds();
        if (options.once ? answered + lost >= frame_count : now >= end) break;
    }
    now = now_ns();
    print_result(now > measuring_from_ns ? (double)(now - measuring_from_ns) / 1e9 : 1e-9, cpu_seconds() - cpu);
    fflush(stdout);
    while (options.hold && !stopping) pause();
    return lost || wrong_code || wrong_opaque || wrong_body || open_connections < options.connections ? 3 : 0;
}

int main(int count, char **words) {
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    if (count < 2) die("load run|echo --port P --protocol remoting|http --frames FILE ...");
    for (int i = 2; i < count; i++) {
        const char *name = words[i];
        if (!strcmp(name, "--own")) options.own = 1;
        else if (!strcmp(name, "--once")) options.once = 1;
        else if (!strcmp(name, "--hold")) options.hold = 1;
        else if (!strcmp(name, "--tls")) options.tls = 1;
        else if (++i == count) die("%s needs a value", name);
        else if (!strcmp(name, "--host")) options.host = words[i];
        else if (!strcmp(name, "--port")) options.port = atoi(words[i]);
        else if (!strcmp(name, "--frames")) options.frames = words[i];
        else if (!strcmp(name, "--cert")) options.certificate = words[i];
        else if (!strcmp(name, "--key")) options.key = words[i];
        else if (!strcmp(name, "--connections")) options.connections = atoi(words[i]);
        else if (!strcmp(name, "--depth")) options.depth = atoi(words[i]);
        else if (!strcmp(name, "--seconds")) options.seconds = atof(words[i]);
        else if (!strcmp(name, "--warmup")) options.warmup = atof(words[i]);
        else if (!strcmp(name, "--code")) expected_code = atol(words[i]);
        else if (!strcmp(name, "--rate")) options.rate = atof(words[i]);
        else if (!strcmp(name, "--protocol")) options.protocol = strcmp(words[i], "http") ? REMOTING : HTTP;
        else if (!strcmp(name, "--check")) options.check = !strcmp(words[i], "code") ? CODE : !strcmp(words[i], "length") ? LENGTH : BYTES;
        else die("there is no option %s", name);
    }
    if (!options.frames || !options.port || options.connections < 1 || options.depth < 1) die("--port and --frames are needed");
    if (options.tls || options.certificate) use_tls(options.certificate, options.key);
    frames = read_frames(options.frames, options.protocol, &frame_count);
    return !strcmp(words[1], "echo") ? echo(options.port, options.protocol, frames) : run();
}
