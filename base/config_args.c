// Settings from the environment and from the command line. See config.h.
#include "base/config.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME_MAX_CHARS 64

static const char env_prefix[] = "PARLEY_";
// Variables that are no settings: the files of settings, and what tests set (patience.h).
static const char *const not_settings[] = {"config", "model_repository", "patience_ms"};

// Copies the name that ends at `end`, in lower case. False if it is too long for a key.
static bool copy_name(char out[NAME_MAX_CHARS], const char *name, const char *end) {
    if (end - name >= NAME_MAX_CHARS) return false;
    for (; name < end; name++) *out++ = (char)tolower((unsigned char)*name);
    *out = '\0';
    return true;
}

// The key that an environment variable may set. False: it is none of ours.
static bool key_of_variable(const char *variable, char name[NAME_MAX_CHARS]) {
    const char *equals = strchr(variable, '=');
    if (strncmp(variable, env_prefix, sizeof env_prefix - 1) != 0 || !equals) return false;
    if (!copy_name(name, variable + sizeof env_prefix - 1, equals)) return false;
    for (size_t i = 0; i < sizeof not_settings / sizeof *not_settings; i++)
        if (strcmp(name, not_settings[i]) == 0) return false;
    return true;
}

int config_load_env(const struct config_table *t, void *settings, struct err *err) {
    char name[NAME_MAX_CHARS];
    struct err reason = {0};
    for (char **p = environ; p && *p; p++) {
        if (!key_of_variable(*p, name) || !config_find(t, name)) continue;
        const char *equals = strchr(*p, '=');
        int rc = config_set(t, settings, name, equals + 1, &reason);
        if (rc < 0)
            return err_set(err, rc, "environment variable %.*s: %s", (int)(equals - *p), *p,
                           reason.text);
    }
    return 0;
}

void config_unknown_env(const struct config_table *t,
                        void (*each)(const char *sentence, bool is_near)) {
    char name[NAME_MAX_CHARS], sentence[256];
    for (char **p = environ; p && *p; p++) {
        if (!key_of_variable(*p, name) || config_find(t, name)) continue;
        const char *near = config_nearest(t, name);
        int length = (int)strcspn(*p, "="), n = 0;
        n = snprintf(sentence, sizeof sentence, "unknown environment variable %.*s", length, *p);
        if (near)
            n += snprintf(sentence + n, sizeof sentence - (size_t)n, "; did you mean %s",
                          env_prefix);
        for (; near && *near; near++) sentence[n++] = (char)toupper((unsigned char)*near);
        snprintf(sentence + n, sizeof sentence - (size_t)n, "%s", near ? "?" : "");
        each(sentence, near);
    }
}

// The row of --name or --name=value, or that of --no-name with *negated.
static const struct config_key *find_option(const struct config_table *t, const char *arg,
                                            bool *negated) {
    char name[NAME_MAX_CHARS];
    *negated = false;
    if (arg[0] != '-' || arg[1] != '-') return NULL;
    if (!copy_name(name, arg + 2, arg + strcspn(arg, "="))) return NULL;
    const struct config_key *key = config_find(t, name);
    if (key || strncmp(name, "no", 2) != 0 || (name[2] != '-' && name[2] != '_')) return key;
    key = config_find(t, name + 3);
    if (!key || !config_is_flag(key)) return NULL;
    *negated = true;
    return key;
}

int config_arg(const struct config_table *t, void *settings, int argc, char **argv, int *i,
               struct err *err) {
    bool negated;
    const struct config_key *key = find_option(t, argv[*i], &negated);
    if (!key) return 0;
    const char *value = strchr(argv[*i], '=');
    if (value && negated)
        return err_set(err, E_INVAL, "%.*s takes no value", (int)(value - argv[*i]), argv[*i]);
    if (value) {
        value++;
    } else if (config_is_flag(key)) {
        value = negated ? "off" : "on";
    } else if (*i + 1 < argc) {
        value = argv[++*i];
    } else {
        return err_set(err, E_INVAL, "%s needs a value", argv[*i]);
    }
    TRY(config_set(t, settings, key->name, value, err));
    return 1;
}
