// Where models come from and where they lie: the settings of Hugging Face's own tools, read from the environment, and
// the layout of their cache, so that those tools and Parley share its files.
//
//   CACHE/models--ORG--NAME/blobs/ETAG               contents, once each
//                           blobs/ETAG.incomplete    the beginning of an incomplete blob
//                           snapshots/COMMIT/PATH    links to blobs
//                           refs/REVISION            the commit of a branch or a tag
//   CACHE/.locks/models--ORG--NAME/ETAG.lock         flock(2) of the process that writes the blob
#pragma once
#include "ws/hub/listing.h"
#include "ws/hub/name.h"
#include <limits.h>

struct hub_place {
    char cache[PATH_MAX]; // HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub
    char endpoint[512];   // HF_ENDPOINT without a slash at its end, else https://huggingface.co
    char token[512];      // HF_TOKEN, else the file HF_TOKEN_PATH or HF_HOME/token; "": none
    bool offline;         // HF_HUB_OFFLINE
    bool plain_http;      // HUB_ALLOW_HTTP: http is allowed to other hosts than this one
};

// E_INVAL: there is no home folder, or an address that is not allowed.
int hub_place_read(struct hub_place *p, struct err *err);
// Paths. E_LIMIT: too long.
int hub_repo_dir(const struct hub_place *p, const struct hub_name *n, char out[PATH_MAX],
                 struct err *err);
int hub_repo_path(const struct hub_place *p, const struct hub_name *n, const char *folder,
                  const char *name, char out[PATH_MAX], struct err *err);
// The commit that a revision stands for in the cache. E_NOTFOUND: not there.
int hub_commit(const struct hub_place *p, const struct hub_name *n, char out[HUB_COMMIT_DIGITS + 1],
               struct err *err);
// Writes refs/REVISION, unless the revision is the commit. Makes the folder refs always: other tools expect it.
int hub_put_commit(const struct hub_place *p, const struct hub_name *n, const char *commit,
                   struct err *err);
// The files of snapshots/COMMIT, sorted, without dangling links. The etag of a file that is no link to a blob is empty.
int hub_snapshot_read(const struct hub_place *p, const struct hub_name *n, const char *commit,
                      struct hub_listing *out, struct err *err);
// Makes snapshots/COMMIT/PATH a link to the blob, and replaces an older link.
int hub_snapshot_link(const struct hub_place *p, const struct hub_name *n, const char *commit,
                      const struct hub_file *f, struct err *err);
// Makes all folders above the last component of the path.
int hub_make_folders(const char *path, struct err *err);
// The path of a temporary file beside `path`.
int hub_temporary(char out[PATH_MAX], const char *path, struct err *err);

// Takes a lock, which ends with its descriptor. LOCK_TAKEN (1): another process has it; try again. LOCK_ABSENT (2): the
// file system has no locks, *fd is -1.
enum { LOCK_TAKEN = 1, LOCK_ABSENT = 2 };
int hub_try_lock(const struct hub_place *p, const struct hub_name *n, const char *etag, int *fd,
                 struct err *err);
// E_BUSY: another process writes a blob of this repository.
int hub_check_unlocked(const struct hub_place *p, const struct hub_name *n, struct err *err);
