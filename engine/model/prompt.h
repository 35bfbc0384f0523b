// A prompt table: the result of prompt learning for a task. Its rows are virtual tokens, which have ids of
// their own in a log, PROMPT_ID_FIRST + row:
//
//   PROMPT_ROWS    each row is an embedding, used in place of a row of the embedding table (soft
//                  prompts, p-tuning). The rows may be anywhere in the log. As with transformers'
//                  inputs_embeds, they are not scaled, but projected, normed and given a position like
//                  other embeddings.
//   PROMPT_PREFIX  each row is a key and a value for every layer. All rows are at the log's beginning,
//                  in order. They enter the cache without norm or rotation, and the tokens after them
//                  have positions from n_rows on. This equals transformers' past_key_values and
//                  FasterTransformer (add_fusedQKV_bias_transpose_kernel).
//
// Virtual tokens take positions in the window like other tokens. A sink_len of at least their number
// keeps them in the window always.
//
// Immutable and reference-counted: any thread may hold one. The hash of its contents is its identity; a
// cache is reused only with the same hash (in sequence_shape.prompt).
#pragma once
#include "base/siphash.h"
#include "engine/model/model_config.h"
#include <stddef.h>

#define PROMPT_ID_FIRST (1 << 30)
#define PROMPT_MAX_ROWS 65536
#define PROMPT_HASH_DIGITS 32
#define PROMPT_NAME_MAX 64 // of a task

enum prompt_kind { PROMPT_ROWS, PROMPT_PREFIX };
const char *prompt_kind_name(enum prompt_kind kind); // "rows", "prefix"

struct prompt {
    enum prompt_kind kind;
    int32_t n_rows;
    int64_t width;       // values of a row
    float *data;         // (n_rows, embed_width) or (n_rows, n_layers, 2, n_kv_heads, head_dim)
    struct hash128 hash; // SHA-256 of all of the above, truncated; never 0
    char digits[PROMPT_HASH_DIGITS + 1];
    _Atomic int32_t n_holders;
};

// Values of a row that this model needs.
int64_t prompt_width(const struct model_config *c, enum prompt_kind kind);
// Copies data (n_rows, width). engine_turn_submit checks whether the model can use the table. E_INVAL:
// a wrong number of rows, a wrong width, or a value that is not finite; E_NOMEM.
int prompt_new(struct prompt **out, enum prompt_kind kind, int64_t n_rows, int64_t width,
               const float *data, struct err *err);
// Reads a folder of Hugging Face's PEFT: adapter_config.json with a peft_type of PROMPT_TUNING, P_TUNING
// or PREFIX_TUNING, and adapter_model.safetensors. The error names the file and what is wrong in it.
int prompt_load(struct prompt **out, const struct model_config *c, const char *dir,
                struct err *err);
struct prompt *prompt_hold(const struct prompt *p); // takes a reference; NULL is allowed
void prompt_free(struct prompt *p);                 // drops a reference; NULL is allowed

// Whether an id of the log stands for a row of some prompt and not for a token.
static inline bool prompt_is_virtual(int32_t id) {
    return id >= PROMPT_ID_FIRST;
}
static inline size_t prompt_bytes(const struct prompt *p) { // of data
    return (size_t)p->n_rows * (size_t)p->width * sizeof *p->data;
}
// (width), borrowed. id: a virtual one of this prompt.
static inline const float *prompt_row(const struct prompt *p, int32_t id) {
    return p->data + (int64_t)(id - PROMPT_ID_FIRST) * p->width;
}
// Whether the virtual token `id` may be at this position of a log.
bool prompt_allows(const struct prompt *p, int64_t position, int32_t id);
// The number of the log's first tokens that are rows of a prefix; 0 without a prefix.
static inline int32_t prompt_n_prefix(const struct prompt *p) {
    return p && p->kind == PROMPT_PREFIX ? p->n_rows : 0;
}

// A table with the name of its task.
struct prompt_task {
    char name[PROMPT_NAME_MAX + 1];
    const struct prompt *prompt;
};
bool prompt_name_valid(const char *name); // 1 to PROMPT_NAME_MAX of A-Z a-z 0-9 _ - . and space
// Find among n tasks the one with this name, or the table with this hash (its digits); NULL: none.
const struct prompt_task *prompt_task_find(const struct prompt_task *list, size_t n,
                                           const char *name);
const struct prompt *prompt_task_table(const struct prompt_task *list, size_t n,
                                       const char *digits);
