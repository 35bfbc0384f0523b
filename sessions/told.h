// What stateless clients know of a turn, so that a conversation that they send again finds it.
//
// A conversation has a chain: a hash of its messages, one after the other, as clients give them back:
// role, words without white space at both ends, names and arguments of tool calls. Thinking is not in
// it. The turn that answers a conversation is stored with the chain behind its answer (`told`), and
// with what its log shows the model (`shown`): the rendered text's length and hash, and those of the
// answer as it was drawn. A later request whose chain runs through `told` continues behind that turn if
// its own rendering begins with the same text: the sampled ids stay.
#pragma once
#include "base/json.h"
#include "base/siphash.h"
#include "engine/engine.h"

#define TOLD_DIGITS 32
// Of a chain, 32 hexadecimal digits.
void told_digits(struct hash128 chain, char out[TOLD_DIGITS + 1]);
// The chain with one more message, a JSON object; it begins with {0}. E_NOMEM.
int told_add(struct hash128 *chain, const cJSON *message);
struct hash128 told_hash(const char *text, size_t len);

// A turn's conversation before its answer. Immutable and counted; any thread.
struct told;
struct told_of {
    struct hash128 chain;
    const char *text; // (len) as rendered
    size_t len;
    bool thinks;        // the prompt has opened the thinking
    const cJSON *tools; // NULL: calls are not looked for
    // What follows a turn whose conversation the client has not sent: chain and text are of these messages
    // alone, the text from where the turn's ends. NULL: chain and text are of all.
    const cJSON *messages;
};
struct told *told_new(const struct told_of *of); // copies. NULL: no memory
struct told *told_hold(struct told *t);          // NULL gives NULL
void told_free(struct told *t);                  // NULL is fine

// The same behind a turn with this `told`, once that is known; t itself where it is of all messages. NULL:
// no memory, or the turn has none.
struct told *told_behind(struct told *t, const char *told);

// The stored strings, for the caller to free. E_NOMEM.
int told_begin(const struct told *t, char **shown);
// Behind an answer: (n) ids with this text.
int told_end(const struct told *t, const struct engine *e, const char *text, size_t len,
             const int32_t *ids, size_t n, char **told, char **shown);

// Of an answer that a client gave back, whose prompt and words have these texts.
int told_given(const char *prompt, size_t prompt_len, const char *said, size_t said_len,
               const char *thought, char **shown);

// The `told` of the turn that `shown`, as stored, is relative to; "": it is of the whole conversation.
const char *told_follows(const cJSON *shown);
// How far a rendering is what a turn's log has shown the model, from byte *from on: 0, or where the text of
// the turn that it follows ends. *from is then where the new text begins. false: it differs.
bool told_suits(const cJSON *shown, const struct chat_rendering *r, size_t *from);
// The assistant's message of an answer. NULL: no memory.
cJSON *told_message(struct engine_syntax syntax, const cJSON *tools, bool thinks, const char *text,
                    size_t len);
