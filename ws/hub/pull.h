// A model's name becomes a path: from the cache, or by downloading what is missing into it.
#pragma once
#include "ws/hub/choice.h"
#include "ws/hub/place.h"

struct pull_state {
    const char *file;    // that is being fetched
    int64_t done, total; // bytes of the whole model; done has those that were here before
    int64_t received;    // by this process
};
struct pull_watch { // all may be called on the caller's thread alone; none is NULL
    void (*progress)(void *ctx, const struct pull_state *s); // for each piece that was written
    void (*say)(void *ctx, const char *sentence); // waits: for another process, for the hub
    void *ctx;
};

// The path of a model that the cache has whole: its folder, or its (first) GGUF file. It does not ask the hub. *bytes
// (may be NULL): the size of its files. E_NOTFOUND: the cache does not have it, or a part is missing.
int pull_find(const struct hub_place *p, const struct hub_name *n, enum hub_want want,
              char out[PATH_MAX], int64_t *bytes, struct err *err);
// Asks the hub and downloads what is missing, then the path as above. E_NOTFOUND: the hub has no such model, revision
// or file; E_DENIED: it is gated or private; E_FULL: the disk has no room, which is checked before. What was written of
// an unfinished file stays, and the next call goes on from there.
int pull_run(const struct hub_place *p, const struct hub_name *n, enum hub_want want,
             const struct pull_watch *w, char out[PATH_MAX], struct err *err);
