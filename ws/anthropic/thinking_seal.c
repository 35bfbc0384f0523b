// Signing thinking. See thinking_seal.h.
#include "ws/anthropic/thinking_seal.h"
#include "base/base64.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/siphash.h"
#include <openssl/evp.h>
#include <string.h>

#define VERSION 1
#define LABEL "parley: thinking of an answer"

int thinking_seal_begin(struct thinking_seal *s) {
    s->hash = EVP_MD_CTX_new();
    if (s->hash && EVP_DigestInit_ex(s->hash, EVP_sha256(), NULL) == 1 &&
        EVP_DigestUpdate(s->hash, LABEL, sizeof LABEL) == 1)
        return 0;
    thinking_seal_release(s);
    return E_NOMEM;
}

void thinking_seal_update(struct thinking_seal *s, const char *text, size_t len) {
    if (s->hash && EVP_DigestUpdate(s->hash, text, len) != 1) thinking_seal_release(s);
}

void thinking_seal_finish(struct thinking_seal *s, const uint64_t key[2],
                          char out[THINKING_SIGNATURE_LEN + 1]) {
    unsigned char digest[EVP_MAX_MD_SIZE], signature[17] = {VERSION};
    unsigned len = 0;
    struct buf text;
    out[0] = '\0';
    if (s->hash && EVP_DigestFinal_ex(s->hash, digest, &len) == 1) {
        struct hash128 mac = siphash128(key, digest, len);
        for (int i = 0; i < 8; i++) signature[1 + i] = (unsigned char)(mac.lo >> 8 * i);
        for (int i = 0; i < 8; i++) signature[9 + i] = (unsigned char)(mac.hi >> 8 * i);
        buf_init(&text, THINKING_SIGNATURE_LEN);
        if (base64_encode(&text, signature, sizeof signature) == 0)
            memcpy(out, buf_z(&text), text.len + 1);
        buf_release(&text);
    }
    thinking_seal_release(s);
}

void thinking_seal_release(struct thinking_seal *s) {
    EVP_MD_CTX_free(s->hash);
    s->hash = NULL;
}
