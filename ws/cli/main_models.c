// parley models: downloads models of the hub into the cache, lists and removes them.
#include "base/json_form.h"
#include "ws/cached_models.h"
#include "ws/cli/cli.h"
#include "ws/cli/model_names.h"
#include <stdio.h>

struct settings {
    bool json;
};
#define SETTINGS struct settings
static const struct config_key keys[] = {
    BOOL("", json, "off", "Print JSON."),
};

enum action { PULL, LIST, REMOVE, RM }; // RM: as `sessions` spells it

static const char *action_name(int i) {
    static const char *const names[] = {"pull", "list", "remove", "rm"};
    return i <= RM ? names[i] : NULL;
}

static int pull(const struct settings *s, const struct hub_place *p, const struct hub_name *n,
                struct err *err) {
    char path[PATH_MAX], name[HUB_NAME_BYTES];
    struct cli_json j;
    TRY(model_name_pull(p, n, HUB_MODEL, path, err));
    if (!s->json) {
        puts(path);
        return 0;
    }
    cli_json_begin(&j);
    json_form(&j.w, "name:%s,path:%s", hub_name_text(n, name), path);
    return cli_json_end(&j, err);
}

// --- list ---

static void print(const struct hub_cached *c) {
    char name[HUB_NAME_BYTES], format[HUB_WEIGHTS + 16];
    snprintf(format, sizeof format, "%s%s%s", hub_cached_format(c), c->weights[0] ? ", " : "",
             c->weights);
    printf("%-56s %-24s %9.2f GB  %.7s\n", hub_name_text(&c->name, name), format,
           (double)c->bytes / 1e9, c->commit);
}

static int print_json(const struct hub_place *p, const struct hub_cached_list *l, struct err *err) {
    struct buf out;
    struct json_writer w;
    buf_init(&out, 1 << 30);
    json_writer_init(&w, &out);
    hub_cached_put(&w, p, l);
    int rc = out.error ? err_set(err, out.error, "out of memory for the output") : 0;
    if (rc == 0) cli_print_json(&out);
    buf_release(&out);
    return rc;
}

static int list(const struct settings *s, const struct hub_place *p, struct err *err) {
    struct hub_cached_list l;
    int rc = hub_cached_read(&l, p, err);
    if (rc == 0) cached_models_name_weights(&l);
    if (rc == 0 && s->json) {
        rc = print_json(p, &l, err);
    } else if (rc == 0 && l.n == 0) {
        printf("no models in %s\n", p->cache);
    } else if (rc == 0) {
        printf("%-56s %-24s %12s  %s\n", "NAME", "FORMAT", "SIZE", "COMMIT");
        for (size_t i = 0; i < l.n; i++) print(&l.items[i]);
    }
    hub_cached_release(&l);
    return rc;
}

// --- remove ---

static int remove_model(const struct settings *s, const struct hub_place *p,
                        const struct hub_name *n, struct err *err) {
    char name[HUB_NAME_BYTES];
    struct cli_json j;
    int64_t freed = 0;
    TRY(hub_cached_remove(p, n, &freed, err));
    hub_name_text(n, name);
    if (!s->json) {
        printf("%s: %.2f GB are free again\n", name, (double)freed / 1e9);
        return 0;
    }
    cli_json_begin(&j);
    json_form(&j.w, "name:%s,bytes:%ld", name, freed);
    return cli_json_end(&j, err);
}

static int run(void *settings, char **words, struct err *err) {
    const struct settings *s = settings;
    const int action = cli_word(&command_models, words[0]);
    struct hub_place place;
    struct hub_name name;
    if (action < 0) return cli_unknown_action(words[0], "pull, list or remove", err);
    if (action == LIST && words[1]) return cli_usage(err, "list takes no name");
    if (action != LIST && !words[1])
        return cli_usage(err, "%s takes a name: ORG/NAME[:QUANT][@REVISION]", words[0]);
    TRY(hub_place_read(&place, err));
    if (action == LIST) return list(s, &place, err);
    TRY(hub_name_parse(&name, words[1], err));
    return action == PULL ? pull(s, &place, &name, err) : remove_model(s, &place, &name, err);
}

const struct cli_command command_models = {
    .name = "models",
    .summary = "download, list and remove models of the Hugging Face hub",
    .usage = "models pull NAME | list | remove NAME",
    .about =
        "pull    download what is missing of a model, or a newer commit, and print its path\n"
        "list    list the models in the cache: name, format, size, commit\n"
        "remove  (or rm) remove a model: of NAME:QUANT that file, of NAME@REVISION that "
        "snapshot\n\n"
        "NAME is ORG/NAME[:QUANT][@REVISION]. With a quant (Q4_K_M) it means the GGUF file that\n"
        "ends in it, without one the model in safetensors; the revision is a branch, a tag or a\n"
        "commit. --model of all commands takes such names too, and downloads only what the cache\n"
        "does not have. A download that was cut off goes on where it ended.\n\n"
        "The cache is that of Hugging Face's tools, which share its files: HF_HUB_CACHE, else\n"
        "HF_HOME/hub, else ~/.cache/huggingface/hub. HF_TOKEN (or what `hf auth login` keeps) "
        "opens\n"
        "gated and private models, HF_ENDPOINT names another hub, HF_HUB_OFFLINE=1 forbids the\n"
        "network. Proxies and certificates are curl's: https_proxy, no_proxy, CURL_CA_BUNDLE. "
        "Only\n"
        "HTTPS is allowed, except for hosts of this machine; HUB_ALLOW_HTTP=1 allows HTTP.",
    CLI_SETTINGS(keys),
    .max_words = 2,
    .word = action_name,
    .run = run,
};
