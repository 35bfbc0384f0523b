// See pull.h.
#include "ws/hub/pull.h"
#include "base/path.h"
#include "ws/hub/fetch.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOCK_POLL_US 100000
#define SPARE_BYTES ((int64_t)16 << 20) // left on the disk

// --- the cache alone ---

static int path_of(const struct hub_place *p, const struct hub_name *n, const char *commit,
                   const struct hub_choice *c, enum hub_want want, char out[PATH_MAX],
                   struct err *err) {
    char inner[PATH_MAX];
    bool gguf = n->quant[0] && want == HUB_MODEL;
    if (!gguf) return hub_repo_path(p, n, "snapshots", commit, out, err);
    TRY(path_join(inner, commit, c->files[0]->path, err));
    return hub_repo_path(p, n, "snapshots", inner, out, err);
}

static int read_index(const struct hub_place *p, const struct hub_name *n, const char *commit,
                      struct buf *out, struct err *err) {
    char inner[PATH_MAX], path[PATH_MAX];
    buf_init(out, 0);
    TRY(path_join(inner, commit, HUB_INDEX, err));
    TRY(hub_repo_path(p, n, "snapshots", inner, path, err));
    return buf_read_file(out, path, HUB_INDEX_BYTES, err);
}

// Adds the weights to a choice of text files. Their index, if the model has one, is in the snapshot already.
static int add_weights(const struct hub_place *p, const struct hub_name *n,
                       const struct hub_listing *l, const char *commit, struct hub_choice *c,
                       struct err *err) {
    struct buf index;
    if (!hub_choice_has_index(c)) return hub_choose_weights(c, n, l, NULL, 0, err);
    int rc = read_index(p, n, commit, &index, err);
    if (rc == 0) rc = hub_choose_weights(c, n, l, buf_z(&index), index.len, err);
    buf_release(&index);
    return rc;
}

int pull_find(const struct hub_place *p, const struct hub_name *n, enum hub_want want,
              char out[PATH_MAX], int64_t *bytes, struct err *err) {
    char commit[HUB_COMMIT_DIGITS + 1] = "";
    struct hub_listing l = {0};
    struct hub_choice c = {0};
    struct hub_name tokenizer = *n;
    tokenizer.quant[0] = '\0';
    int rc = hub_commit(p, n, commit, err);
    if (rc == 0) rc = hub_snapshot_read(p, n, commit, &l, err);
    if (rc == 0) rc = hub_choose(&c, n, want, &l, err);
    if (rc == 0 && want == HUB_MODEL) rc = add_weights(p, n, &l, commit, &c, err);
    // Another tool may have fetched the weights alone. Parley also needs a tokenizer.
    if (rc == 0 && want == HUB_MODEL && !n->quant[0]) {
        struct hub_choice text;
        rc = hub_choose(&text, &tokenizer, HUB_TOKENIZER, &l, err);
        hub_choice_release(&text);
    }
    if (rc == 0) rc = path_of(p, n, commit, &c, want, out, err);
    if (bytes) *bytes = 0;
    for (size_t i = 0; bytes && i < c.n; i++) *bytes += c.files[i]->size;
    hub_choice_release(&c);
    hub_listing_release(&l);
    return rc < 0 && rc != E_NOMEM && rc != E_INVAL ? E_NOTFOUND : rc;
}

// --- the hub ---

struct pull {
    const struct hub_place *place;
    const struct hub_name *name;
    const struct pull_watch *watch;
    struct hub_net *net;
    struct hub_listing listing;
    struct hub_choice choice;
    size_t n_fetched; // files of the choice that are in the snapshot
    struct pull_state state;
    char repo[HUB_NAME_BYTES];
};

static int too_long(struct err *err) {
    return err_set(err, E_LIMIT, "an address of the hub is too long");
}

static void on_progress(void *ctx, int64_t more) {
    struct pull *x = ctx;
    x->state.done += more;
    if (more > 0) x->state.received += more;
    x->watch->progress(x->watch->ctx, &x->state);
}

static void on_waiting(void *ctx, const char *why, int64_t seconds) {
    struct pull *x = ctx;
    char text[600];
    snprintf(text, sizeof text, "%s; the next try is in %lld s", why, (long long)seconds);
    x->watch->say(x->watch->ctx, text);
}

static int list_files(struct pull *x, struct err *err) {
    const struct fetch_watch w = {on_progress, on_waiting, x};
    char url[ADDRESS_BYTES];
    struct buf json;
    snprintf(url, sizeof url, "%s/api/models/%s/revision/", x->place->endpoint, x->repo);
    if (!address_add(url, x->name->revision, false) || strlen(url) + 16 > sizeof url)
        return too_long(err);
    strcat(url, "?blobs=true");
    int rc =
        fetch_text(x->net, url, x->repo, "the list of files", HUB_ANSWER_BYTES, &json, &w, err);
    if (rc == 0) rc = hub_listing_parse(&x->listing, buf_z(&json), json.len, err);
    buf_release(&json);
    return rc;
}

static bool has_size(const char *path, int64_t size) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == size;
}

static int blob_path(const struct pull *x, const struct hub_file *f, char out[PATH_MAX],
                     struct err *err) {
    return hub_repo_path(x->place, x->name, "blobs", f->etag, out, err);
}

// Bytes of the files that are still to be written.
static int64_t missing_bytes(const struct pull *x) {
    int64_t sum = 0;
    for (size_t i = x->n_fetched; i < x->choice.n; i++) {
        const struct hub_file *f = x->choice.files[i];
        char path[PATH_MAX], part[PATH_MAX];
        struct stat st;
        if (blob_path(x, f, path, NULL) < 0 || has_size(path, f->size)) continue;
        bool begun = (size_t)snprintf(part, sizeof part, "%s.incomplete", path) < sizeof part &&
                     stat(part, &st) == 0 && st.st_size <= f->size;
        sum += f->size - (begun ? st.st_size : 0);
    }
    return sum;
}

static int check_room(const struct pull *x, struct err *err) {
    const int64_t need = missing_bytes(x);
    struct statvfs fs;
    char folder[PATH_MAX];
    TRY(hub_repo_path(x->place, x->name, "blobs", "x", folder, err));
    TRY(hub_make_folders(folder, err));
    *strrchr(folder, '/') = '\0';
    if (need == 0 || statvfs(folder, &fs) < 0) return 0;
    const int64_t left = (int64_t)(fs.f_bavail * fs.f_frsize);
    if (need + SPARE_BYTES <= left) return 0;
    return err_set(err, E_FULL, "%s needs %.2f GB more, and %s has %.2f GB free", x->repo,
                   (double)need / 1e9, folder, (double)left / 1e9);
}

static void say(struct pull *x, const char *what, const char *then) {
    char text[HUB_PATH_BYTES + 200];
    snprintf(text, sizeof text, "%s%s%s", what, x->state.file, then);
    x->watch->say(x->watch->ctx, text);
}

// Waits while another process has the lock. *lock stays -1 where the file system has no locks. Two processes could then
// write to the same file, and their hashes would not show it, because each process hashes the bytes that it received. So
// the user is told to run one process only.
static int lock_file(struct pull *x, const struct hub_file *f, int *lock, struct err *err) {
    int rc = hub_try_lock(x->place, x->name, f->etag, lock, err);
    if (rc == LOCK_TAKEN) say(x, "another process is downloading ", ": waiting for it");
    if (rc == LOCK_ABSENT)
        say(x, "the cache's file system has no locks: no other process should download ", " now");
    while (rc == LOCK_TAKEN) {
        usleep(LOCK_POLL_US);
        rc = hub_try_lock(x->place, x->name, f->etag, lock, err);
    }
    return rc < 0 ? rc : 0;
}

static int fetch_file(struct pull *x, const struct hub_file *f, const char *blob, struct err *err) {
    const struct fetch_watch w = {on_progress, on_waiting, x};
    char url[ADDRESS_BYTES];
    snprintf(url, sizeof url, "%s/%s/resolve/%s/", x->place->endpoint, x->repo, x->listing.commit);
    if (!address_add(url, f->path, true)) return too_long(err);
    const struct fetch_file what = {.url = url, .repo = x->repo, .file = f, .path = blob};
    return fetch_blob(x->net, &what, &w, err);
}

// Makes the file's blob and then the snapshot's link to it. After waiting for another process, the blob is there.
static int get_file(struct pull *x, const struct hub_file *f, struct err *err) {
    char blob[PATH_MAX];
    int lock = -1, rc = 0;
    TRY(blob_path(x, f, blob, err));
    x->state.file = f->path;
    if (!has_size(blob, f->size)) {
        TRY(lock_file(x, f, &lock, err));
        if (has_size(blob, f->size))
            x->state.done += f->size;
        else
            rc = fetch_file(x, f, blob, err);
    } else {
        x->state.done += f->size;
    }
    if (rc == 0) rc = hub_snapshot_link(x->place, x->name, x->listing.commit, f, err);
    if (lock >= 0) close(lock);
    return rc;
}

static int get_chosen(struct pull *x, struct err *err) {
    x->state.total = 0;
    for (size_t i = 0; i < x->choice.n; i++) x->state.total += x->choice.files[i]->size;
    TRY(check_room(x, err));
    for (; x->n_fetched < x->choice.n; x->n_fetched++)
        TRY(get_file(x, x->choice.files[x->n_fetched], err));
    return 0;
}

// The weights come last: a snapshot that has them all is complete.
static int get_all(struct pull *x, enum hub_want want, struct err *err) {
    TRY(list_files(x, err));
    TRY(hub_choose(&x->choice, x->name, want, &x->listing, err));
    bool more = want == HUB_MODEL && !x->name->quant[0];
    if (more && !hub_choice_has_index(&x->choice))
        TRY(hub_choose_weights(&x->choice, x->name, &x->listing, NULL, 0, err));
    TRY(get_chosen(x, err));
    if (!more || !hub_choice_has_index(&x->choice)) return 0;
    TRY(add_weights(x->place, x->name, &x->listing, x->listing.commit, &x->choice, err));
    return get_chosen(x, err);
}

int pull_run(const struct hub_place *p, const struct hub_name *n, enum hub_want want,
             const struct pull_watch *w, char out[PATH_MAX], struct err *err) {
    struct pull x = {.place = p, .name = n, .watch = w};
    char name[HUB_NAME_BYTES];
    if (p->offline)
        return err_set(err, E_NOTFOUND, "HF_HUB_OFFLINE is set: %s is not asked for",
                       hub_name_text(n, name));
    hub_name_repo(n, x.repo);
    TRY(hub_net_open(&x.net, p, err));
    int rc = get_all(&x, want, err);
    if (rc == 0) rc = path_of(p, n, x.listing.commit, &x.choice, want, out, err);
    if (rc == 0) rc = hub_put_commit(p, n, x.listing.commit, err);
    hub_choice_release(&x.choice);
    hub_listing_release(&x.listing);
    hub_net_close(x.net);
    return rc;
}
