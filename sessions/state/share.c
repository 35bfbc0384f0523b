// See share.h.
#include "sessions/state/share.h"
#include "base/err.h"
#include "base/random_id.h"
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

void share_draw(char token[SHARE_TOKEN_LEN + 1]) {
    random_id(token);
    random_id(token + RANDOM_ID_LEN);
}

int share_digest(const char *token, char digest[SHARE_DIGEST_LEN + 1]) {
    unsigned char sum[SHA256_DIGEST_LENGTH];
    if (strlen(token) != SHARE_TOKEN_LEN || strspn(token, "0123456789abcdef") != SHARE_TOKEN_LEN)
        return E_INVAL;
    SHA256((const unsigned char *)token, SHARE_TOKEN_LEN, sum);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++) snprintf(digest + 2 * i, 3, "%02x", sum[i]);
    return 0;
}
