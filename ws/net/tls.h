// Certificate and key: checked before libwebsockets is told, because it fails without a reason; and
// changed later on the SSL_CTX that it made, because it has no call for that. Net thread only.
#pragma once
#include "base/err.h"

struct ssl_ctx_st;

int tls_check(const char *cert, const char *key, struct err *err);
// Connections from now on see the new certificate. On an error the old pair stays.
int tls_load(struct ssl_ctx_st *ctx, const char *cert, const char *key, struct err *err);
