// Certificate and key: an SSL_CTX made of two PEM files; an error says what is wrong with them.
// Net thread only.
#pragma once
#include "base/err.h"

struct ssl_ctx_st;
struct ssl_st;

// TLS 1.2 and 1.3. Offers HTTP/1.1 only, except on connections after tls_want_http2().
int tls_open(struct ssl_ctx_st **out, const char *cert, const char *key, struct err *err);
// Connections from now on see the new certificate. On an error the old pair stays.
int tls_load(struct ssl_ctx_st *ctx, const char *cert, const char *key, struct err *err);
void tls_want_http2(struct ssl_st *ssl); // before its handshake
void tls_close(struct ssl_ctx_st *ctx);  // NULL is fine
