// See place.h.
#include "ws/hub/place.h"
#include "base/buf.h"
#include "base/path.h"
#include "ws/hub/address.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DEPTH 8 // folders below a snapshot

// --- settings ---

static const char *variable(const char *name) {
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

// As huggingface_hub reads a switch.
static bool is_on(const char *name) {
    const char *v = variable(name);
    return v && (!strcmp(v, "1") || !strcasecmp(v, "on") || !strcasecmp(v, "yes") ||
                 !strcasecmp(v, "true"));
}

// "~/x" of an environment variable, which no shell has expanded.
static int expand(char out[PATH_MAX], const char *path, struct err *err) {
    const char *home = variable("HOME");
    if (strncmp(path, "~/", 2) == 0 && home) return path_join(out, home, path + 2, err);
    if ((size_t)snprintf(out, PATH_MAX, "%s", path) < PATH_MAX) return 0;
    return err_set(err, E_LIMIT, "the path %.300s... is too long", path);
}

static int find_home(char out[PATH_MAX], struct err *err) {
    const char *home = variable("HF_HOME"), *cache = variable("XDG_CACHE_HOME");
    if (home) return expand(out, home, err);
    if (cache) return path_join(out, cache, "huggingface", err);
    if (!variable("HOME"))
        return err_set(err, E_INVAL, "no folder for models: set HF_HOME or HOME");
    return path_join(out, variable("HOME"), ".cache/huggingface", err);
}

static int find_cache(struct hub_place *p, const char *home, struct err *err) {
    const char *cache = variable("HF_HUB_CACHE");
    if (!cache) cache = variable("HUGGINGFACE_HUB_CACHE"); // its older name
    return cache ? expand(p->cache, cache, err) : path_join(p->cache, home, "hub", err);
}

// A token is one word. What else the variable or the file has would become other header lines.
static int take_token(struct hub_place *p, const char *text, const char *from, struct err *err) {
    text += strspn(text, " \t\r\n");
    size_t n = strcspn(text, " \t\r\n");
    if (n >= sizeof p->token || text[n + strspn(text + n, " \t\r\n")])
        return err_set(err, E_INVAL, "%s holds no token of the hub", from);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return err_set(err, E_INVAL, "%s holds no token of the hub", from);
    memcpy(p->token, text, n);
    p->token[n] = '\0';
    return 0;
}

static int find_token(struct hub_place *p, const char *home, struct err *err) {
    char path[PATH_MAX];
    struct buf text;
    const char *named = variable("HF_TOKEN_PATH");
    if (variable("HF_TOKEN")) return take_token(p, variable("HF_TOKEN"), "HF_TOKEN", err);
    if (is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return 0;
    TRY(named ? expand(path, named, err) : path_join(path, home, "token", err));
    if (access(path, F_OK) < 0) return 0;
    int rc = buf_read_file(&text, path, 4096, err);
    if (rc == 0) rc = take_token(p, buf_z(&text), path, err);
    buf_release(&text);
    return rc;
}

int hub_place_read(struct hub_place *p, struct err *err) {
    char home[PATH_MAX];
    const char *endpoint = variable("HF_ENDPOINT");
    *p = (struct hub_place){.offline = is_on("HF_HUB_OFFLINE"),
                            .plain_http = is_on("HUB_ALLOW_HTTP")};
    TRY(find_home(home, err));
    TRY(find_cache(p, home, err));
    TRY(find_token(p, home, err));
    if (!endpoint) endpoint = "https://huggingface.co";
    size_t n = strlen(endpoint);
    while (n > 0 && endpoint[n - 1] == '/') n--;
    if (n >= sizeof p->endpoint) return err_set(err, E_INVAL, "HF_ENDPOINT is too long");
    memcpy(p->endpoint, endpoint, n);
    return address_check(p->endpoint, p->plain_http, "HF_ENDPOINT", err);
}

// --- paths ---

int hub_repo_dir(const struct hub_place *p, const struct hub_name *n, char out[PATH_MAX],
                 struct err *err) {
    char repo[2 * HUB_WORD_MAX + 16];
    snprintf(repo, sizeof repo, "models--%s--%s", n->org, n->name);
    return path_join(out, p->cache, repo, err);
}

int hub_repo_path(const struct hub_place *p, const struct hub_name *n, const char *folder,
                  const char *name, char out[PATH_MAX], struct err *err) {
    char repo[PATH_MAX], inner[PATH_MAX];
    TRY(hub_repo_dir(p, n, repo, err));
    TRY(path_join(inner, repo, folder, err));
    return path_join(out, inner, name, err);
}

int hub_make_folders(const char *path, struct err *err) {
    char part[PATH_MAX];
    if ((size_t)snprintf(part, sizeof part, "%s", path) >= sizeof part)
        return err_set(err, E_LIMIT, "the path %.300s... is too long", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0777) < 0 && errno != EEXIST && access(part, F_OK) < 0)
            return err_errno(err, "cannot create %s", part);
        *slash = '/';
    }
    return 0;
}

int hub_temporary(char out[PATH_MAX], const char *path, struct err *err) {
    if (snprintf(out, PATH_MAX, "%s.%d.tmp", path, (int)getpid()) < PATH_MAX) return 0;
    return err_set(err, E_LIMIT, "the path %.300s... is too long", path);
}

// --- refs ---

int hub_commit(const struct hub_place *p, const struct hub_name *n, char out[HUB_COMMIT_DIGITS + 1],
               struct err *err) {
    char path[PATH_MAX];
    struct buf text;
    if (hub_is_hex(n->revision, HUB_COMMIT_DIGITS)) {
        memcpy(out, n->revision, HUB_COMMIT_DIGITS + 1);
        return 0;
    }
    TRY(hub_repo_path(p, n, "refs", n->revision, path, err));
    int rc = buf_read_file(&text, path, 4096, err);
    if (rc == 0) {
        size_t len = strcspn(buf_z(&text), "\r\n ");
        snprintf(out, HUB_COMMIT_DIGITS + 1, "%.*s", (int)len, buf_z(&text));
        if (len != HUB_COMMIT_DIGITS || !hub_is_hex(out, HUB_COMMIT_DIGITS))
            rc = err_set(err, E_CORRUPT, "%s names no commit", path);
    }
    buf_release(&text);
    return rc;
}

static int write_file(const char *path, const char *text, struct err *err) {
    FILE *f = fopen(path, "wbe");
    if (!f) return err_errno(err, "cannot create %s", path);
    bool put = fputs(text, f) >= 0;
    if (fclose(f) == 0 && put) return 0;
    return err_errno(err, "cannot write %s", path);
}

int hub_put_commit(const struct hub_place *p, const struct hub_name *n, const char *commit,
                   struct err *err) {
    char path[PATH_MAX], temporary[PATH_MAX];
    TRY(hub_repo_path(p, n, "refs", n->revision, path, err));
    TRY(hub_make_folders(path, err));
    if (strcmp(n->revision, commit) == 0) return 0;
    TRY(hub_temporary(temporary, path, err));
    TRY(write_file(temporary, commit, err));
    if (rename(temporary, path) == 0) return 0;
    int rc = err_errno(err, "cannot write %s", path);
    unlink(temporary);
    return rc;
}

// --- snapshots ---

// "../../blobs/ETAG": the last part of a link.
static void etag_of(const char *path, char out[HUB_ETAG_BYTES]) {
    char target[PATH_MAX];
    ssize_t n = readlink(path, target, sizeof target - 1);
    out[0] = '\0';
    if (n <= 0) return;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    if (slash && (hub_is_hex(slash + 1, 40) || hub_is_hex(slash + 1, 64))) strcpy(out, slash + 1);
}

static int read_folder(const char *top, const char *below, int depth, struct hub_listing *out,
                       struct err *err) {
    char dir[PATH_MAX];
    TRY(path_join(dir, top, below, err));
    DIR *d = opendir(*below ? dir : top);
    if (!d) return err_errno(err, "cannot read %s", *below ? dir : top);
    int rc = 0;
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        char inner[PATH_MAX], path[PATH_MAX], etag[HUB_ETAG_BYTES];
        struct stat st;
        if (e->d_name[0] == '.' && (!e->d_name[1] || !strcmp(e->d_name, ".."))) continue;
        if (*below ? path_join(inner, below, e->d_name, NULL) < 0
                   : snprintf(inner, sizeof inner, "%s", e->d_name) < 0)
            continue;
        if (path_join(path, top, inner, NULL) < 0 || stat(path, &st) < 0) continue;
        if (S_ISDIR(st.st_mode) && depth < MAX_DEPTH)
            rc = read_folder(top, inner, depth + 1, out, err);
        if (!S_ISREG(st.st_mode) || !hub_path_is_safe(inner)) continue;
        etag_of(path, etag);
        rc = hub_listing_add(out, inner, st.st_size, etag, err);
    }
    closedir(d);
    return rc;
}

int hub_snapshot_read(const struct hub_place *p, const struct hub_name *n, const char *commit,
                      struct hub_listing *out, struct err *err) {
    char dir[PATH_MAX];
    *out = (struct hub_listing){0};
    TRY(hub_repo_path(p, n, "snapshots", commit, dir, err));
    int rc = read_folder(dir, "", 0, out, err);
    if (rc < 0) hub_listing_release(out);
    snprintf(out->commit, sizeof out->commit, "%.*s", HUB_COMMIT_DIGITS, commit);
    hub_listing_sort(out);
    return rc;
}

int hub_snapshot_link(const struct hub_place *p, const struct hub_name *n, const char *commit,
                      const struct hub_file *f, struct err *err) {
    char inner[PATH_MAX], path[PATH_MAX], temporary[PATH_MAX], target[PATH_MAX] = "";
    size_t len = 0;
    TRY(path_join(inner, commit, f->path, err));
    TRY(hub_repo_path(p, n, "snapshots", inner, path, err));
    TRY(hub_make_folders(path, err));
    for (const char *s = inner; *s && len + 4 < sizeof target;
         s++) // one up for each folder, and snapshots
        if (*s == '/') len += (size_t)snprintf(target + len, sizeof target - len, "../");
    snprintf(target + len, sizeof target - len, "../blobs/%s", f->etag);
    TRY(hub_temporary(temporary, path, err));
    unlink(temporary);
    if (symlink(target, temporary) == 0 && rename(temporary, path) == 0) return 0;
    int rc = err_errno(err, "cannot link %s", path);
    unlink(temporary);
    return rc;
}

// --- locks ---

static int lock_folder(const struct hub_place *p, const struct hub_name *n, char out[PATH_MAX],
                       struct err *err) {
    char inner[2 * HUB_WORD_MAX + 32];
    snprintf(inner, sizeof inner, ".locks/models--%s--%s", n->org, n->name);
    return path_join(out, p->cache, inner, err);
}

// Whether the descriptor is still of the file of that name: a holder may have removed it.
static bool is_that_file(int fd, const char *path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

int hub_try_lock(const struct hub_place *p, const struct hub_name *n, const char *etag, int *fd,
                 struct err *err) {
    char dir[PATH_MAX], path[PATH_MAX], name[HUB_ETAG_BYTES + 8];
    snprintf(name, sizeof name, "%s.lock", etag);
    TRY(lock_folder(p, n, dir, err));
    TRY(path_join(path, dir, name, err));
    TRY(hub_make_folders(path, err));
    for (;;) {
        *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (*fd < 0) return err_errno(err, "cannot open %s", path);
        int got = flock(*fd, LOCK_EX | LOCK_NB), why = errno;
        if (got == 0 && is_that_file(*fd, path)) return 0;
        close(*fd);
        *fd = -1;
        if (got < 0 && why != EINTR) return why == EWOULDBLOCK ? LOCK_TAKEN : LOCK_ABSENT;
    }
}

int hub_check_unlocked(const struct hub_place *p, const struct hub_name *n, struct err *err) {
    char dir[PATH_MAX], path[PATH_MAX], repo[HUB_NAME_BYTES];
    TRY(lock_folder(p, n, dir, err));
    DIR *d = opendir(dir);
    bool busy = false;
    for (struct dirent *e; d && !busy && (e = readdir(d));) {
        if (e->d_name[0] == '.' || path_join(path, dir, e->d_name, NULL) < 0) continue;
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) continue;
        busy = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
        close(fd);
    }
    if (d) closedir(d);
    if (!busy) return 0;
    return err_set(err, E_BUSY, "another process is downloading %s", hub_name_repo(n, repo));
}
