// parley inspect: shows a model folder's contents and memory need, as text or JSON.
#include "engine/gguf/gguf_arch.h"
#include "engine/model/families.h"
#include "engine/model/inspect.h"
#include "engine/model/text_files.h"
#include "engine/text/chat_template.h"
#include "ws/cli/cli.h"
#include "ws/cli/model_names.h"

struct settings {
    char *model, *tokenizer, *chat_template;
    bool json, families, architectures;
};
#define SETTINGS struct settings
static const struct config_key keys[] = {
    TEXT("", model, "", MODEL_VALUE, "Model (required): " MODEL_VALUE_HELP "."),
    TEXT("", tokenizer, "", MODEL_VALUE,
         "Model whose tokenizer and chat template to use instead of the model's own."),
    TEXT("", chat_template, "", "NAME|FILE",
         "Chat template to use instead of the model's own: a built-in name or a file."),
    BOOL("", json, "off", "Print JSON."),
    BOOL("", families, "off", "Print the model families (model_type) that can be loaded instead."),
    BOOL(
        "", architectures, "off",
        "Print the architectures of GGUF files (general.architecture) that can be loaded instead."),
};

// If the tokenizer or the template cannot be used, the output says why.
static void put_text(const struct settings *s, const char *model, struct json_writer *w) {
    struct tokenizer *t = NULL;
    struct chat_template *c = NULL;
    struct err err = {0};
    char dir[PATH_MAX];
    if (text_files_dir(dir, model, s->tokenizer, &err) < 0 || tokenizer_open(&t, dir, &err) < 0) {
        json_put_string(w, "tokenizer_error", err.text);
        return;
    }
    json_put_string(w, "tokenizer", tokenizer_description(t));
    if (chat_template_open(&c, dir, s->chat_template[0] ? s->chat_template : NULL, t, &err) < 0)
        json_put_string(w, "chat_template_error", err.text);
    else
        json_put_string(w, "chat_template", chat_template_name(c));
    chat_template_close(c);
    tokenizer_close(t);
}

// Prints one row of a list of objects on its own line.
static void print_row(const cJSON *row) {
    const cJSON *field;
    printf("\n ");
    cJSON_ArrayForEach(field, row) {
        if (cJSON_IsBool(field))
            printf(" %s %s", field->string, cJSON_IsTrue(field) ? "yes" : "no");
        else
            printf(" %s %.15g", field->string, field->valuedouble);
    }
}

static void print_value(const cJSON *item, int depth) {
    const cJSON *child;
    if (cJSON_IsString(item)) {
        printf("%s\n", item->valuestring);
    } else if (cJSON_IsNumber(item)) {
        printf("%.15g\n", item->valuedouble);
    } else if (cJSON_IsBool(item)) {
        puts(cJSON_IsTrue(item) ? "yes" : "no");
    } else if (cJSON_IsArray(item)) {
        cJSON_ArrayForEach(child, item) {
            if (cJSON_IsNumber(child))
                printf("%.15g ", child->valuedouble);
            else if (cJSON_IsString(child))
                printf("%s ", child->valuestring);
            else if (cJSON_IsObject(child))
                print_row(child);
        }
        putchar('\n');
    } else if (cJSON_IsObject(item)) {
        if (depth > 0) putchar('\n');
        cJSON_ArrayForEach(child, item) {
            printf("%*s%-*s ", depth * 2, "", 26 - depth * 2, child->string);
            print_value(child, depth + 1);
        }
    } else {
        puts("-");
    }
}

static int run(void *settings, char **words, struct err *err) {
    const struct settings *s = settings;
    char path[PATH_MAX];
    const char *model = s->model[0] || !words[0] ? s->model : path;
    struct cli_json j;
    int rc;
    if (s->families) {
        for (size_t i = 0; family_name(i); i++) puts(family_name(i));
        return 0;
    }
    if (s->architectures) {
        for (size_t i = 0; gguf_arch_name(i); i++) puts(gguf_arch_name(i));
        return 0;
    }
    if (!s->model[0] && !words[0]) return cli_usage(err, CLI_NO_MODEL);
    if (!s->model[0]) TRY(model_name_path(words[0], HUB_MODEL, path, err));
    cli_json_begin(&j);
    TRY_GOTO(done, model_inspect(model, &j.w, err));
    put_text(s, model, &j.w);
    if (s->json) return cli_json_end(&j, err);
    json_close(&j.w, '}');
    cJSON *root = json_parse(buf_z(&j.out), j.out.len, &json_limits_file, err);
    if (root)
        print_value(root, 0);
    else
        rc = err->code;
    cJSON_Delete(root);
done:
    buf_release(&j.out);
    return rc;
}

const struct cli_command command_inspect = {
    .name = "inspect",
    .summary = "show a model folder's contents and memory need",
    .usage = "inspect --model MODEL [--json] | --families | --architectures",
    .about = "Shows a model folder's family, sizes, number formats, tokenizer, chat template and "
             "memory need.",
    CLI_SETTINGS(keys),
    .max_words = 1,
    .run = run,
};
