// PEM files into an SSL_CTX. See tls.h.
#include "ws/net/tls.h"
#include <openssl/err.h>
#include <openssl/ssl.h>

static int fail(struct err *err, const char *path) {
    unsigned long code = ERR_peek_last_error();
    const char *reason = ERR_reason_error_string(code);
    err_set(err, E_FORMAT, "%s: %s", path, reason ? reason : "OpenSSL cannot use it");
    ERR_clear_error();
    return err->code;
}

static int use(SSL_CTX *ctx, const char *cert, const char *key, struct err *err) {
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1) return fail(err, cert);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1) return fail(err, key);
    if (SSL_CTX_check_private_key(ctx) != 1) return fail(err, key);
    return 0;
}

int tls_check(const char *cert, const char *key, struct err *err) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx) return err_set(err, E_NOMEM, "no memory for TLS");
    int rc = use(ctx, cert, key, err);
    SSL_CTX_free(ctx);
    return rc;
}

int tls_load(struct ssl_ctx_st *ctx, const char *cert, const char *key, struct err *err) {
    TRY(tls_check(cert, key, err)); // a half-changed pair would refuse everybody
    return use(ctx, cert, key, err);
}
