// A model's name becomes a path: from the cache, or by downloading what is missing into it.
#pragma once
#include "ws/hub/choice.h"
#include "ws/hub/place.h"

struct pull_state {
    const char *file;    // the file that is being fetched
    int64_t done, total; // bytes of the model; `done` includes bytes that were in the cache before
    int64_t received;    // bytes that this process has received
};
struct pull_watch { // called on the caller's thread; none is NULL
    void (*progress)(void *ctx, const struct pull_state *s); // after each write
    void (*say)(void *ctx, const char *sentence);            // why the download waits
    void *ctx;
};

// The path of a model that the cache has whole: its folder, or its (first) GGUF file. It does not ask the hub. *bytes
// (may be NULL): the size of its files. E_NOTFOUND: the cache does not have it, or a part is missing.
int pull_find(const struct hub_place *p, const struct hub_name *n, enum hub_want want,
              char out[PATH_MAX], int64_t *bytes, struct err *err);
// Asks the hub and downloads missing files, then gives the path as above. E_NOTFOUND: the hub has no such model,
// revision or file; E_DENIED: the model is gated or private; E_FULL: the disk has no room, which is checked first. An
// unfinished file stays, and the next call resumes it.
int pull_run(const struct hub_place *p, const struct hub_name *n, enum hub_want want,
             const struct pull_watch *w, char out[PATH_MAX], struct err *err);
