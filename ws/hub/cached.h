// The models in the cache, which load without the hub, and their removal.
#pragma once
#include "base/json.h"
#include "ws/hub/place.h"

enum cached_kind {
    CACHED_SAFETENSORS,
    CACHED_GGUF,
    CACHED_UNFINISHED, // an interrupted download: path is ""
};
enum { HUB_WEIGHTS = 24 };
struct hub_cached {
    struct hub_name name; // as --model takes it: with quant and revision
    enum cached_kind kind;
    // What the format of its weights is called ("W4A16", "GPTQ-Int4"), which who reads the list may fill in. "": not known, or
    // a dtype's. A GGUF file's is in its name.
    char weights[HUB_WEIGHTS];
    int64_t bytes; // of all files of the model; CACHED_UNFINISHED: received so far
    char commit[HUB_COMMIT_DIGITS + 1];
    char path[PATH_MAX]; // its folder, or its (first) GGUF file
};
struct hub_cached_list {
    struct hub_cached *items; // (n) by name
    size_t n;
};

// A cache that does not exist is empty. E_NOMEM, E_IO. hub_cached_release() also after an error.
int hub_cached_read(struct hub_cached_list *out, const struct hub_place *p, struct err *err);
void hub_cached_release(struct hub_cached_list *l);

// {"cache":FOLDER,"models":[{"name","format","weight_format","bytes","commit","path"}]}; of an unfinished download commit and
// path are null; weight_format only where it is known.
void hub_cached_put(struct json_writer *w, const struct hub_place *p,
                    const struct hub_cached_list *l);
const char *hub_cached_format(const struct hub_cached *c); // "safetensors", "gguf", "unfinished"

// Removes what the name names: with a quant that GGUF file, with a revision that snapshot, with neither the whole
// repository. Blobs go with the last link to them. *freed: bytes. E_NOTFOUND: not there; E_BUSY: it is being downloaded.
int hub_cached_remove(const struct hub_place *p, const struct hub_name *n, int64_t *freed,
                      struct err *err);
