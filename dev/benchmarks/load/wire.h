// SPDX-License-Identifier: Apache-2.0
/* A socket, plain or encrypted by OpenSSL (compiled with -DTLS; a program without it needs no OpenSSL). */
#ifndef WIRE_H
#define WIRE_H
#include "common.h"

/* What everybody agrees upon by default, and so both servers that are compared. */
#define SUITE "TLS_AES_256_GCM_SHA384"

#ifdef TLS
#include <openssl/err.h>
#include <openssl/ssl.h>

struct wire {
    int fd;
    SSL *tls; /* NULL: plain */
};

static SSL_CTX *tls_context; /* NULL: everything is plain */

static void fail_tls(const char *what) {
    die("%s: %s", what, ERR_error_string(ERR_get_error(), NULL));
}

/* With a certificate a server's, else a client's, which believes everybody. */
static void use_tls(const char *certificate, const char *key) {
    if (!(tls_context = SSL_CTX_new(certificate ? TLS_server_method() : TLS_client_method()))) fail_tls("TLS");
    SSL_CTX_set_min_proto_version(tls_context, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(tls_context, SUITE);
    SSL_CTX_set_mode(tls_context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (certificate && (SSL_CTX_use_certificate_chain_file(tls_context, certificate) != 1 ||
                        SSL_CTX_use_PrivateKey_file(tls_context, key, SSL_FILETYPE_PEM) != 1))
        fail_tls(certificate);
}

/* Shake hands over a socket that blocks; 0 where the other side does not. */
static int open_wire(struct wire *w, int fd, int is_server) {
    w->fd = fd;
    w->tls = tls_context ? SSL_new(tls_context) : NULL;
    if (!w->tls) return 1;
    SSL_set_fd(w->tls, fd);
    return (is_server ? SSL_accept(w->tls) : SSL_connect(w->tls)) == 1;
}

static void close_wire(struct wire *w) {
    if (w->tls) SSL_free(w->tls);
    close(w->fd);
    w->tls = NULL;
    w->fd = -1;
}

/* As recv(2) and send(2) say it: -1 and EAGAIN where there is nothing now. */
static ssize_t tls_result(const struct wire *w, int n) {
    if (n > 0) return n;
    int why = SSL_get_error(w->tls, n);
    if (why == SSL_ERROR_ZERO_RETURN) return 0;
    errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return -1;
}

static ssize_t take_in(const struct wire *w, char *at, size_t size, int flags) {
    if (!w->tls) return recv(w->fd, at, size, flags);
    ERR_clear_error();
    return tls_result(w, SSL_read(w->tls, at, (int)size));
}

static ssize_t put_out(const struct wire *w, const char *at, size_t size) {
    if (!w->tls) return send(w->fd, at, size, MSG_NOSIGNAL);
    ERR_clear_error();
    return tls_result(w, SSL_write(w->tls, at, (int)size));
}

static int is_encrypted(const struct wire *w) { return w->tls != NULL; }
#else
struct wire {
    int fd;
};

static void use_tls(const char *certificate, const char *key) {
    (void)certificate, (void)key;
    die("this program was compiled without TLS");
}

static int open_wire(struct wire *w, int fd, int is_server) {
    (void)is_server;
    w->fd = fd;
    return 1;
}

static void close_wire(struct wire *w) {
    close(w->fd);
    w->fd = -1;
}

static ssize_t take_in(const struct wire *w, char *at, size_t size, int flags) { return recv(w->fd, at, size, flags); }

static ssize_t put_out(const struct wire *w, const char *at, size_t size) { return send(w->fd, at, size, MSG_NOSIGNAL); }

static int is_encrypted(const struct wire *w) {
    (void)w;
    return 0;
}
#endif

/* Write what the socket takes. Returns 0 when all is gone, 1 when some is left, -1 when the connection is lost. */
static int flush(const struct wire *w, struct buffer *b) {
    while (b->start < b->end) {
        ssize_t n = put_out(w, b->data + b->start, b->end - b->start);
        if (n < 0) return errno == EAGAIN ? 1 : -1;
        b->start += (size_t)n;
    }
    return 0;
}
#endif
