// Signatures of thinking blocks, which Anthropic's clients expect of each block and send back with it. This server
// accepts any signature, because a client may bring a conversation from another server. Its own signature is a MAC under
// the database's key (sessions_secret), the same for the same thinking, also after a restart.
//
//     signature = base64(version || SipHash-2-4-128(key, SHA-256(label || text)))
//
// The text is hashed as it streams. Pure, any thread.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define THINKING_SIGNATURE_LEN 24 // base64 of 17 bytes

struct thinking_seal { // zeroed: none is under way
    void *hash;        // EVP_MD_CTX
};
// E_NOMEM; then update does nothing, and finish's signature is empty.
int thinking_seal_begin(struct thinking_seal *s);
void thinking_seal_update(struct thinking_seal *s, const char *text, size_t len);
void thinking_seal_finish(struct thinking_seal *s, const uint64_t key[2],
                          char out[THINKING_SIGNATURE_LEN + 1]);
void thinking_seal_release(struct thinking_seal *s); // of one that is not finished
