// Signatures of thinking blocks. A client sends a block back with the signature that came with it; a
// block that was changed, or that no answer of this database had, is refused. Stateless: the signature
// is a MAC under the database's key (sessions_secret), so it holds for ever, also after a restart.
//
//     signature = base64(version || SipHash-2-4-128(key, SHA-256(label || text)))
//
// The text is hashed as it streams. Pure, any thread.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define THINKING_SIGNATURE_LEN 24 // base64 of 17 bytes

struct thinking_seal { // zeroed: none is under way
    void *hash;        // EVP_MD_CTX
};
// E_NOMEM; then update and finish do nothing, and finish's signature is not accepted by any check.
int thinking_seal_begin(struct thinking_seal *s);
void thinking_seal_update(struct thinking_seal *s, const char *text, size_t len);
void thinking_seal_finish(struct thinking_seal *s, const uint64_t key[2],
                          char out[THINKING_SIGNATURE_LEN + 1]);
void thinking_seal_release(struct thinking_seal *s); // of one that is not finished

// Whether the signature is that of this text. false also without memory.
bool thinking_seal_check(const char *signature, const char *text, size_t len,
                         const uint64_t key[2]);
