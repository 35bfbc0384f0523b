// Which files of a repository a model needs. It works on the hub's list and on a snapshot's alike.
#pragma once
#include "ws/hub/listing.h"
#include "ws/hub/name.h"

enum hub_want { HUB_MODEL, HUB_TOKENIZER };

struct hub_choice {
    const struct hub_file **files; // (n) borrowed from the listing, in the order of download
    size_t n;
};

#define HUB_INDEX "model.safetensors.index.json"
#define HUB_INDEX_BYTES ((size_t)64 << 20)

// With a quant: the GGUF file that has this name or whose name ends in the quant; all parts of a split file, in order.
// Letters' case does not matter. E_NOTFOUND: no file matches, and *err lists the quants; E_INVAL: several files match;
// E_CORRUPT: a part is missing.
// Without a quant: configuration, tokenizer and templates, then the index. E_NOTFOUND: the repository has no model of
// Hugging Face's layout in safetensors. hub_choice_release() also after an error.
int hub_choose(struct hub_choice *out, const struct hub_name *name, enum hub_want want,
               const struct hub_listing *l, struct err *err);
// Adds the weights that the index names, or model.safetensors if index is NULL. Adds nothing with a quant. E_FORMAT: the
// index is no such JSON; E_CORRUPT: a file of the index is missing; E_DENIED: the index names a path that is not plain.
int hub_choose_weights(struct hub_choice *out, const struct hub_name *name,
                       const struct hub_listing *l, const char *index, size_t len, struct err *err);
void hub_choice_release(struct hub_choice *c);

// Whether the choice needs the index's text for hub_choose_weights.
bool hub_choice_has_index(const struct hub_choice *c);

// "Q4_K_M" of "sub/Model-Q4_K_M-00001-of-00003.gguf"; the whole stem if it ends in no known format. False: the file is no
// GGUF file of weights, or not a first part.
bool hub_gguf_tag(const char *path, char out[HUB_PATH_BYTES]);
// The number of parts of a split file's first part; 1 for a whole file; 0 for another part.
int hub_gguf_parts(const char *path);
// Writes part `part` (from 1) of `parts`, given the first one's path.
void hub_gguf_part(const char *first, int part, int parts, char out[HUB_PATH_BYTES]);
