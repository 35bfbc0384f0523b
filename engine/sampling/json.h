// Sampling parameters from and to JSON, under the names of the rows (rows.h). Types are strict,
// ranges are checked, unknown keys are ignored, null counts as absent.
#pragma once
#include "base/buf.h"
#include "engine/sampling/params.h"

struct cJSON;
struct json_writer;

// Puts the object's values into *s and marks them as given. On failure *s is unchanged and *err
// names the key. *s holds a reference to the grammar; an empty text removes the grammar. At most one
// of the keys json_schema, grammar, regex and choice may be present. n_vocab: ids must be below it.
// Pass INT32_MAX if no model is known yet (then sampling_params_check checks the ids).
int sampling_json_read(struct turn_sampling *s, const struct cJSON *object, int32_t n_vocab,
                       struct err *err);
// The same from an OpenAI request: the rows of SAMPLING_OPENAI, also under their aliases.
int sampling_json_read_openai(struct turn_sampling *s, const struct cJSON *request, int32_t n_vocab,
                              struct err *err);
// The member that sampling_json_read_openai refused; NULL: no single member is at fault.
const char *sampling_json_refused(const struct cJSON *request, int32_t n_vocab);
// The same from text; NULL changes nothing.
int sampling_json_apply(struct turn_sampling *s, const char *json, int32_t n_vocab,
                        struct err *err);

// Appends an object of the parameters whose bits are in `keys`: s->set for the given ones,
// SAMPLING_EVERY_KEY for all (the seed only if there is one). Reading a float back gives the same
// bits.
int sampling_json_write(struct buf *out, const struct turn_sampling *s, uint64_t keys);
void sampling_json_put(struct json_writer *w, const char *key, const struct turn_sampling *s,
                       uint64_t keys);
// The same as a new string, which the caller frees. NULL: E_NOMEM.
char *sampling_json_text(const struct turn_sampling *s, uint64_t keys, struct err *err);

// Writes the rows as an array, from which a client builds its settings: name, type, range, step,
// label, meaning of 0, help, and whether the parameter belongs in a form.
void sampling_json_put_rows(struct json_writer *w, const char *key);
