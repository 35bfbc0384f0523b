// How a conversation that a stateless client sends again finds its turn.
//
// A conversation has a chain: a hash over its owner and its messages in order, in the form in which clients send them
// back: role, trimmed text, names and arguments of tool calls. Thinking is left out. A turn is stored
// with the chain after its answer (`told`), and with what its log shows the model (`shown`): length and
// hash of the rendered text, and of the answer as it was drawn. A later request whose chain contains
// `told` continues after that turn if its own rendering begins with the same text. The sampled ids stay.
#pragma once
#include "base/json.h"
#include "base/siphash.h"
#include "engine/engine.h"

#define TOLD_DIGITS 32
// Writes a chain as 32 hexadecimal digits.
void told_digits(struct hash128 chain, char out[TOLD_DIGITS + 1]);
// The chain of an owner's conversation without a message. One owner's chains equal no other's, so that finding a
// turn costs the same however often another owner has the same conversation.
struct hash128 told_start(const char *owner);
// The chain with one more message, a JSON object. E_NOMEM.
int told_add(struct hash128 *chain, const cJSON *message);

// A turn's conversation before its answer. Immutable and counted; any thread.
struct told;
struct told_of {
    struct hash128 chain;
    const char *text; // (len) as rendered
    size_t len;
    bool thinks;        // the prompt ends inside the thinking
    const cJSON *tools; // NULL: text is not searched for tool calls
    // Set if the client sent only messages after a stored turn, not the whole conversation. Then chain and
    // text cover these messages alone; the text begins where that turn's text ends. NULL: they cover all.
    const cJSON *messages;
};
struct told *told_new(const struct told_of *of); // copies. NULL: no memory
struct told *told_hold(struct told *t);          // NULL gives NULL
void told_free(struct told *t);                  // NULL is fine

// For a told with `messages`: the one after a turn with this `told`. Else t itself. NULL: no memory, or
// the turn has no told.
struct told *told_behind(struct told *t, const char *told);

// These make the stored strings, which the caller frees. E_NOMEM.
int told_begin(const struct told *t, char **shown);
// After an answer with these ids (n) and this text.
int told_end(const struct told *t, const struct engine *e, const char *text, size_t len,
             const int32_t *ids, size_t n, char **told, char **shown);

// For an answer that a client sent, with the rendered texts of its prompt and its words.
int told_given(const char *prompt, size_t prompt_len, const char *said, size_t said_len,
               const char *thought, char **shown);

// How many bytes of a rendering a stored `shown` covers, if it suits.
size_t told_length(const char *shown);
// The `told` of the turn that a stored `shown` follows; "": `shown` covers the whole conversation.
const char *told_follows(const cJSON *shown);
// Whether the rendering, from byte *from on, begins with the text that the turn's log showed the model.
// *from: 0, or the end of the text of the turn that it follows. True: *from is the end of the equal text.
bool told_suits(const cJSON *shown, const struct chat_rendering *r, size_t *from);
