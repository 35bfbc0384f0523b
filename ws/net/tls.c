// PEM files into an SSL_CTX. See tls.h.
#include "ws/net/tls.h"
#include "base/buf.h"
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <string.h>

#define FILE_MAX (1 << 20)

static int fail(struct err *err, const char *path, const char *what) {
    unsigned long code = ERR_peek_last_error();
    const char *reason = ERR_reason_error_string(code);
    bool no_pem = ERR_GET_LIB(code) == ERR_LIB_PEM || ERR_GET_REASON(code) == ERR_R_PEM_LIB;
    if (no_pem)
        err_set(err, E_FORMAT, "%s has no %s in PEM format", path, what);
    else
        err_set(err, E_FORMAT, "%s: %s", path, reason ? reason : "OpenSSL cannot use it");
    ERR_clear_error();
    return err->code;
}

// OpenSSL would wait for the writer of a pipe in the file's place.
static int check_file(const char *path, struct err *err) {
    struct buf pem;
    int rc = buf_read_file(&pem, path, FILE_MAX, err);
    if (pem.data) OPENSSL_cleanse(pem.data, pem.len);
    buf_release(&pem);
    return rc;
}

static int use(SSL_CTX *ctx, const char *cert, const char *key, struct err *err) {
    TRY(check_file(cert, err));
    TRY(check_file(key, err));
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1) return fail(err, cert, "certificate");
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
        return fail(err, key, "private key");
    if (SSL_CTX_check_private_key(ctx) != 1)
        return fail(err, key, "private key of the certificate");
    return 0;
}

static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                       const unsigned char *in, unsigned in_len, void *ctx) {
    const char *ours = SSL_get_app_data(ssl) ? "\x02h2" : "\x08http/1.1";
    unsigned char *chosen;
    int rc = SSL_select_next_proto(&chosen, out_len, (const unsigned char *)ours,
                                   (unsigned)strlen(ours), in, in_len);
    if (rc != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

int tls_open(struct ssl_ctx_st **out, const char *cert, const char *key, struct err *err) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx) return err_set(err, E_NOMEM, "no memory for TLS");
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    // In TLS 1.2 only forward secrecy and AEAD, as TLS 1.3 has them always.
    SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20:!PSK");
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(ctx, choose_alpn, NULL);
    int rc = use(ctx, cert, key, err);
    if (rc == 0)
        *out = ctx;
    else
        SSL_CTX_free(ctx);
    return rc;
}

int tls_load(struct ssl_ctx_st *ctx, const char *cert, const char *key, struct err *err) {
    struct ssl_ctx_st *trial;
    TRY(tls_open(&trial, cert, key, err)); // a half-changed pair would refuse all clients
    SSL_CTX_free(trial);
    return use(ctx, cert, key, err);
}

void tls_want_http2(struct ssl_st *ssl) {
    static char mark;
    SSL_set_app_data(ssl, &mark);
}

void tls_close(struct ssl_ctx_st *ctx) {
    SSL_CTX_free(ctx);
}
