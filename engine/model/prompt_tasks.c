// See prompt_tasks.h.
#include "engine/model/prompt_tasks.h"
#include "base/path.h"

#include "engine/model/ft_config.h"
#include "engine/model/ft_folder.h"
#include "engine/model/ft_prompt.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIST_BYTES 65536

// Takes p.
static int add(struct prompt_tasks *t, const char *name, struct prompt *p, struct err *err) {
    int rc = 0;
    if (!prompt_name_valid(name))
        rc = err_set(err, E_INVAL,
                     "the task '%.80s' needs a name of 1 to %d letters, digits, spaces, '_', '-', "
                     "'.'",
                     name, PROMPT_NAME_MAX);
    for (size_t i = 0; rc == 0 && i < t->n; i++)
        if (strcmp(t->list[i].name, name) == 0)
            rc = err_set(err, E_INVAL, "the task '%s' is given twice", name);
    struct prompt_task *grown = rc == 0 ? realloc(t->list, (t->n + 1) * sizeof *grown) : NULL;
    if (rc == 0 && !grown) rc = err_set(err, E_NOMEM, "no memory for the task '%s'", name);
    if (rc < 0) {
        prompt_free(p);
        return rc;
    }
    t->list = grown;
    t->list[t->n] = (struct prompt_task){.prompt = p};
    snprintf(t->list[t->n++].name, sizeof grown->name, "%s", name);
    return 0;
}

// --- the checkpoint's ----------------------------------------------------------------------------

static int load_checkpoint(struct prompt_tasks *t, const char *model_dir, struct err *err) {
    char dir[PATH_MAX], path[PATH_MAX + 16];
    struct prompt *p;
    bool found;
    TRY(ft_folder_find(dir, model_dir, &found, err));
    if (!found) return 0;
    struct ft_config *c = calloc(1, sizeof *c);
    if (!c) return err_set(err, E_NOMEM, "no memory for the tasks of %s", dir);
    snprintf(path, sizeof path, "%s/config.ini", dir);
    int rc = ft_config_load(c, path, err);
    t->start_id = rc == 0 ? c->prompt_start_id : -1;
    for (int32_t i = 0; rc == 0 && i < c->n_tasks; i++) {
        rc = ft_prompt_load(&p, c, dir, &c->tasks[i], err);
        if (rc == 0) rc = add(t, c->tasks[i].name, p, err);
    }
    free(c);
    return rc;
}

// --- the setting's -------------------------------------------------------------------------------

static int load_one(struct prompt_tasks *t, const struct model_config *c, const char *name,
                    const char *dir, struct err *err) {
    struct prompt *p;
    struct err why = {0};
    int rc = prompt_load(&p, c, dir, &why);
    if (rc < 0) return err_set(err, rc, "prompt task '%.64s': %s", name, why.text);
    return add(t, name, p, err);
}

static bool is_table(const char *dir) {
    char path[PATH_MAX];
    return (size_t)snprintf(path, sizeof path, "%s/adapter_config.json", dir) < sizeof path &&
           access(path, F_OK) == 0;
}

static int load_folders(struct prompt_tasks *t, const struct model_config *c, const char *dir,
                        struct err *err) {
    char path[PATH_MAX];
    struct dirent **list;
    size_t before = t->n;
    int rc = 0, n = scandir(dir, &list, NULL, alphasort);
    if (n < 0) return err_errno(err, "prompt_tasks: %s", dir);
    for (int i = 0; i < n; i++) {
        bool fits = path_join(path, dir, list[i]->d_name, NULL) == 0;
        if (rc == 0 && fits && list[i]->d_name[0] != '.' && is_table(path))
            rc = load_one(t, c, list[i]->d_name, path, err);
        free(list[i]);
    }
    free(list);
    if (rc == 0 && t->n == before)
        return err_set(err, E_NOTFOUND,
                       "prompt_tasks: neither %s nor a folder in it has an adapter_config.json",
                       dir);
    return rc;
}

static int load_folder(struct prompt_tasks *t, const struct model_config *c, char *dir,
                       struct err *err) {
    for (size_t n = strlen(dir); n > 1 && dir[n - 1] == '/'; n--) dir[n - 1] = '\0';
    const char *slash = strrchr(dir, '/');
    if (is_table(dir)) return load_one(t, c, slash ? slash + 1 : dir, dir, err);
    return load_folders(t, c, dir, err);
}

static int load_list(struct prompt_tasks *t, const struct model_config *c, char *rest,
                     struct err *err) {
    for (char *item; (item = strsep(&rest, ","));) {
        if (!*item) continue;
        char *dir = strchr(item, '=');
        if (dir) *dir++ = '\0';
        TRY(dir ? load_one(t, c, item, dir, err) : load_folder(t, c, item, err));
    }
    return 0;
}

int prompt_tasks_load(struct prompt_tasks *t, const struct model_config *c, const char *model_dir,
                      const char *list, struct err *err) {
    *t = (struct prompt_tasks){.start_id = -1};
    TRY(load_checkpoint(t, model_dir, err));
    if (strlen(list) > LIST_BYTES)
        return err_set(err, E_LIMIT, "prompt_tasks has more than %d bytes", LIST_BYTES);
    char *copy = strdup(list);
    if (!copy) return err_set(err, E_NOMEM, "no memory for prompt_tasks");
    int rc = load_list(t, c, copy, err);
    free(copy);
    return rc;
}

void prompt_tasks_release(struct prompt_tasks *t) {
    for (size_t i = 0; i < t->n; i++) prompt_free((struct prompt *)(uintptr_t)t->list[i].prompt);
    free(t->list);
    *t = (struct prompt_tasks){0};
}
