// See cached.h.
#include "ws/hub/cached.h"
#include "base/json_form.h"
#include "base/path.h"
#include "ws/hub/choice.h"
#include "ws/hub/pull.h"
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_MODELS 100000
#define INCOMPLETE ".incomplete"

// The names in a folder, without those that begin with a dot.
struct names {
    char **list;
    size_t n;
};

static void names_release(struct names *x) {
    for (size_t i = 0; i < x->n; i++) free(x->list[i]);
    free(x->list);
    *x = (struct names){0};
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// A folder that does not exist has none.
static int names_read(struct names *out, const char *folder, struct err *err) {
    *out = (struct names){0};
    DIR *d = opendir(folder);
    int rc =
        !d && errno != ENOENT && errno != ENOTDIR ? err_errno(err, "cannot read %s", folder) : 0;
    for (struct dirent *e; d && rc == 0 && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        char **more = realloc(out->list, (out->n + 1) * sizeof *more);
        if (more) out->list = more;
        char *name = more ? strdup(e->d_name) : NULL;
        if (name)
            out->list[out->n++] = name;
        else
            rc = err_set(err, E_NOMEM, "no memory for the names in %s", folder);
    }
    if (d) closedir(d);
    if (out->n > 1) qsort(out->list, out->n, sizeof *out->list, compare_names);
    return rc;
}

// --- reading ---

static int add(struct hub_cached_list *l, const struct hub_cached *one, struct err *err) {
    if (l->n == MAX_MODELS) return err_set(err, E_LIMIT, "more than %d models", MAX_MODELS);
    struct hub_cached *more = realloc(l->items, (l->n + 1) * sizeof *more);
    if (!more) return err_set(err, E_NOMEM, "no memory for a list of models");
    l->items = more;
    l->items[l->n++] = *one;
    return 0;
}

// The name of a commit: "main", else the first branch or tag that stands for it, else the commit.
static void name_commit(const struct hub_place *p, struct hub_name *n, const char *commit) {
    char repo[PATH_MAX], refs[PATH_MAX], there[HUB_COMMIT_DIGITS + 1];
    struct names names = {0};
    n->has_revision = false;
    strcpy(n->revision, "main");
    if (hub_commit(p, n, there, NULL) == 0 && strcmp(there, commit) == 0) return;
    n->has_revision = true;
    if (hub_repo_dir(p, n, repo, NULL) == 0 && path_join(refs, repo, "refs", NULL) == 0)
        names_read(&names, refs, NULL);
    for (size_t i = 0; i < names.n; i++) {
        if (strlen(names.list[i]) >= sizeof n->revision) continue;
        strcpy(n->revision, names.list[i]);
        if (hub_commit(p, n, there, NULL) == 0 && strcmp(there, commit) == 0) break;
        n->revision[0] = '\0';
    }
    if (!names.n || !n->revision[0] || strcmp(n->revision, "main") == 0)
        strcpy(n->revision, commit);
    names_release(&names);
}

// Adds the model that the name chooses, if the snapshot has it whole.
static int add_model(struct hub_cached_list *out, const struct hub_place *p, struct hub_cached *one,
                     struct err *err) {
    struct hub_name by_commit = one->name;
    struct err why = {0};
    strcpy(by_commit.revision, one->commit);
    int rc = pull_find(p, &by_commit, HUB_MODEL, one->path, &one->bytes, &why);
    if (rc == E_NOMEM) return err_set(err, rc, "%s", why.text);
    return rc == 0 ? add(out, one, err) : 0;
}

// The quant of a GGUF file: its tag, or its path where two files have one tag.
static void quant_of(const struct hub_listing *l, const char *path, struct hub_name *n) {
    struct hub_choice c;
    if (!hub_gguf_tag(path, n->quant)) return;
    if (hub_choose(&c, n, HUB_MODEL, l, NULL) == E_INVAL)
        snprintf(n->quant, sizeof n->quant, "%s", path);
    hub_choice_release(&c);
}

static int read_snapshot(struct hub_cached_list *out, const struct hub_place *p,
                         const struct hub_name *repo, const char *commit, struct err *err) {
    struct hub_listing l;
    struct hub_cached one = {.name = *repo, .kind = CACHED_SAFETENSORS};
    if (!hub_is_hex(commit, HUB_COMMIT_DIGITS)) return 0;
    snprintf(one.commit, sizeof one.commit, "%s", commit);
    name_commit(p, &one.name, commit);
    int rc = hub_snapshot_read(p, repo, commit, &l, err);
    if (rc < 0) return rc == E_NOTFOUND ? 0 : rc; // another process has removed it
    rc = add_model(out, p, &one, err);
    one.kind = CACHED_GGUF;
    for (size_t i = 0; rc == 0 && i < l.n; i++) {
        char tag[HUB_PATH_BYTES];
        if (!hub_gguf_tag(l.files[i].path, tag)) continue;
        quant_of(&l, l.files[i].path, &one.name);
        rc = add_model(out, p, &one, err);
    }
    hub_listing_release(&l);
    return rc;
}

static int read_unfinished(struct hub_cached_list *out, const struct hub_place *p,
                           const struct hub_name *repo, struct err *err) {
    struct hub_cached one = {.name = *repo, .kind = CACHED_UNFINISHED};
    struct names names;
    char folder[PATH_MAX], path[PATH_MAX];
    TRY(hub_repo_dir(p, repo, path, err));
    TRY(path_join(folder, path, "blobs", err));
    int rc = names_read(&names, folder, err);
    size_t n_unfinished = 0;
    for (size_t i = 0; i < names.n; i++) {
        const char *end = strrchr(names.list[i], '.');
        struct stat st;
        if (!end || strcmp(end, INCOMPLETE) != 0) continue;
        n_unfinished++;
        if (path_join(path, folder, names.list[i], NULL) == 0 && stat(path, &st) == 0)
            one.bytes += st.st_size;
    }
    names_release(&names);
    return rc == 0 && n_unfinished > 0 ? add(out, &one, err) : rc;
}

// "models--ORG--NAME".
static bool parse_folder(const char *folder, struct hub_name *out) {
    char text[HUB_NAME_BYTES];
    if (strncmp(folder, "models--", 8) != 0 || strlen(folder) >= sizeof text) return false;
    strcpy(text, folder + 8);
    char *dashes = strstr(text, "--");
    if (!dashes) return false;
    *dashes = '/';
    memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    return hub_name_parse(out, text, NULL) == 0 && !out->quant[0] && !out->has_revision;
}

static int read_repo(struct hub_cached_list *out, const struct hub_place *p,
                     const struct hub_name *repo, struct err *err) {
    char path[PATH_MAX], folder[PATH_MAX];
    struct names commits;
    TRY(hub_repo_dir(p, repo, path, err));
    TRY(path_join(folder, path, "snapshots", err));
    int rc = names_read(&commits, folder, err);
    for (size_t i = 0; rc == 0 && i < commits.n; i++)
        rc = read_snapshot(out, p, repo, commits.list[i], err);
    names_release(&commits);
    return rc == 0 ? read_unfinished(out, p, repo, err) : rc;
}

int hub_cached_read(struct hub_cached_list *out, const struct hub_place *p, struct err *err) {
    struct names repos;
    *out = (struct hub_cached_list){0};
    int rc = names_read(&repos, p->cache, err);
    for (size_t i = 0; rc == 0 && i < repos.n; i++) {
        struct hub_name repo;
        if (parse_folder(repos.list[i], &repo)) rc = read_repo(out, p, &repo, err);
    }
    names_release(&repos);
    return rc;
}

void hub_cached_release(struct hub_cached_list *l) {
    free(l->items);
    *l = (struct hub_cached_list){0};
}

const char *hub_cached_format(const struct hub_cached *c) {
    static const char *const names[] = {"safetensors", "gguf", "unfinished"};
    return names[c->kind];
}

static void put(struct json_writer *w, const struct hub_cached *c) {
    char name[HUB_NAME_BYTES];
    json_form(w, "{name:%s,format:%s,weight_format?:%s,bytes:%ld,commit:%s,path:%s}",
              hub_name_text(&c->name, name), hub_cached_format(c),
              c->weights[0] ? c->weights : NULL, c->bytes, c->commit[0] ? c->commit : NULL,
              c->path[0] ? c->path : NULL);
}

void hub_cached_put(struct json_writer *w, const struct hub_place *p,
                    const struct hub_cached_list *l) {
    json_form(w, "{cache:%s,models:[", p->cache);
    for (size_t i = 0; i < l->n; i++) put(w, &l->items[i]);
    json_form(w, "]}");
}

// --- removal ---

static int64_t n_removed; // bytes of blobs, of the call that runs: nftw() takes no context

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    if (remove(path) < 0) return -1;
    if (S_ISREG(st->st_mode) && strstr(path, "/blobs/")) n_removed += st->st_size;
    return 0;
}

static int remove_tree(const char *path, struct err *err) {
    if (access(path, F_OK) < 0) return 0;
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0) return 0;
    return err_errno(err, "cannot remove %s", path);
}

static int remove_repo(const struct hub_place *p, const struct hub_name *n, struct err *err) {
    char path[PATH_MAX], locks[PATH_MAX], below[2 * HUB_WORD_MAX + 32];
    TRY(hub_repo_dir(p, n, path, err));
    snprintf(below, sizeof below, ".locks/%s", strrchr(path, '/') + 1);
    TRY(path_join(locks, p->cache, below, err));
    TRY(remove_tree(path, err));
    return remove_tree(locks, err);
}

// Whether a snapshot links to the blob. A snapshot that cannot be read may, so it is an error.
static int is_linked(const struct hub_place *p, const struct hub_name *n,
                     const struct names *commits, const char *etag, bool *out, struct err *err) {
    *out = false;
    for (size_t i = 0; !*out && i < commits->n; i++) {
        struct hub_listing l;
        int rc = hub_snapshot_read(p, n, commits->list[i], &l, err);
        if (rc < 0 && rc != E_NOTFOUND) return rc; // E_NOTFOUND: another process has removed it
        for (size_t j = 0; !*out && j < l.n; j++) *out = strcmp(l.files[j].etag, etag) == 0;
        hub_listing_release(&l);
    }
    return 0;
}

// Removes the link first: a blob without a link only wastes space, a link without its blob is a broken model.
static int remove_file(const struct hub_place *p, const struct hub_name *n, const char *commit,
                       const struct names *commits, const struct hub_file *f, struct err *err) {
    char inner[PATH_MAX], path[PATH_MAX];
    struct stat st;
    bool linked = true;
    TRY(path_join(inner, commit, f->path, err));
    TRY(hub_repo_path(p, n, "snapshots", inner, path, err));
    if (unlink(path) < 0) return err_errno(err, "cannot remove %s", path);
    for (;;) { // folders that have become empty, below the snapshot's own
        *strrchr(path, '/') = '\0';
        if (strcmp(strrchr(path, '/') + 1, commit) == 0 || rmdir(path) < 0) break;
    }
    if (!f->etag[0]) {
        n_removed += f->size;
        return 0;
    }
    TRY(is_linked(p, n, commits, f->etag, &linked, err));
    if (linked) return 0;
    TRY(hub_repo_path(p, n, "blobs", f->etag, path, err));
    if (lstat(path, &st) < 0) return 0;
    if (unlink(path) < 0) return err_errno(err, "cannot remove %s", path);
    n_removed += st.st_size;
    return 0;
}

static int remove_files(const struct hub_place *p, const struct hub_name *n, const char *commit,
                        const struct names *commits, struct err *err) {
    struct hub_listing l;
    struct hub_choice c = {0};
    TRY(hub_snapshot_read(p, n, commit, &l, err));
    int rc = n->quant[0] ? hub_choose(&c, n, HUB_MODEL, &l, err) : 0;
    for (size_t i = 0; rc == 0 && i < (n->quant[0] ? c.n : l.n); i++)
        rc = remove_file(p, n, commit, commits, n->quant[0] ? c.files[i] : &l.files[i], err);
    hub_choice_release(&c);
    hub_listing_release(&l);
    return rc;
}

// Removes the branches and tags that stand for the commit.
static int remove_refs(const struct hub_place *p, const struct hub_name *n, const char *commit,
                       struct err *err) {
    struct names refs;
    char repo[PATH_MAX], folder[PATH_MAX], path[PATH_MAX], there[HUB_COMMIT_DIGITS + 1];
    struct hub_name one = *n;
    TRY(hub_repo_dir(p, n, repo, err));
    TRY(path_join(folder, repo, "refs", err));
    int rc = names_read(&refs, folder, err);
    for (size_t i = 0; rc == 0 && i < refs.n; i++) {
        if (snprintf(one.revision, sizeof one.revision, "%s", refs.list[i]) >= HUB_PATH_BYTES)
            continue;
        if (hub_commit(p, &one, there, NULL) < 0 || strcmp(there, commit) != 0) continue;
        if (path_join(path, folder, refs.list[i], NULL) == 0 && unlink(path) < 0)
            rc = err_errno(err, "cannot remove %s", path);
    }
    names_release(&refs);
    return rc;
}

// Removes the snapshot's folder if it is empty, and the repository with its last snapshot.
static int tidy(const struct hub_place *p, const struct hub_name *n, const char *commit,
                const struct names *commits, struct err *err) {
    char path[PATH_MAX];
    TRY(hub_repo_path(p, n, "snapshots", commit, path, err));
    if (rmdir(path) < 0) return 0;
    return commits->n <= 1 ? remove_repo(p, n, err) : remove_refs(p, n, commit, err);
}

static int remove_part(const struct hub_place *p, const struct hub_name *n, struct err *err) {
    char commit[HUB_COMMIT_DIGITS + 1], repo[PATH_MAX], snapshots[PATH_MAX];
    struct names commits;
    TRY(hub_commit(p, n, commit, err));
    TRY(hub_repo_dir(p, n, repo, err));
    TRY(path_join(snapshots, repo, "snapshots", err));
    int rc = names_read(&commits, snapshots, err);
    if (rc == 0) rc = remove_files(p, n, commit, &commits, err);
    if (rc == 0) rc = tidy(p, n, commit, &commits, err);
    names_release(&commits);
    return rc;
}

int hub_cached_remove(const struct hub_place *p, const struct hub_name *n, int64_t *freed,
                      struct err *err) {
    char repo[PATH_MAX], name[HUB_NAME_BYTES];
    n_removed = 0;
    TRY(hub_repo_dir(p, n, repo, err));
    if (access(repo, F_OK) < 0)
        return err_set(err, E_NOTFOUND, "%s is not in the cache %s", hub_name_repo(n, name),
                       p->cache);
    TRY(hub_check_unlocked(p, n, err));
    int rc = n->quant[0] || n->has_revision ? remove_part(p, n, err) : remove_repo(p, n, err);
    *freed = n_removed;
    return rc;
}
