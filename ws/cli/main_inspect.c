// parley inspect: shows a model folder's contents and memory need, as text or JSON.
#include "base/json.h"
#include "engine/model/inspect.h"
#include "engine/model/text_files.h"
#include "engine/text/chat_template.h"
#include "ws/cli/cli.h"

struct settings {
    char *model, *chat_template;
    bool json;
};
static const struct config_key keys[] = {
    {"", "model", CONFIG_STRING, offsetof(struct settings, model), 0, 0, 0, "",
     "Model folder (required).", 0},
    {"", "chat_template", CONFIG_STRING, offsetof(struct settings, chat_template), 0, 0, 0, "",
     "Chat template to use instead of the model's own: a built-in name or a file.", 0},
    {"", "json", CONFIG_BOOL, offsetof(struct settings, json), 0, 0, 0, "off", "Print JSON.", 0},
};
static const struct config_table table = {keys, sizeof keys / sizeof *keys};

// If the tokenizer or the template cannot be used, the output says why.
static void put_text(const struct settings *s, struct json_writer *w) {
    struct tokenizer *t = NULL;
    struct chat_template *c = NULL;
    struct err err = {0};
    char dir[PATH_MAX];
    if (text_files_dir(dir, s->model, &err) < 0 || tokenizer_open(&t, dir, &err) < 0) {
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
    cJSON_ArrayForEach(field, row) printf(" %s %.15g", field->string, field->valuedouble);
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

int main_inspect(int argc, char **argv) {
    struct settings s;
    struct buf out;
    struct json_writer w;
    struct err err = {0};
    char *word = NULL;
    int n_words,
        rc = cli_parse(&table, &s, argc, argv, "inspect --model DIR [--json]",
                       "Shows a model folder's family, sizes, number formats, tokenizer, chat "
                       "template and memory need.",
                       &word, 1, &n_words);
    if (rc != CLI_PARSED) return rc == CLI_HELP_SHOWN ? CLI_OK : rc;
    if (!s.model[0] && word) config_set(&table, &s, "model", word, &err);
    if (!s.model[0]) {
        config_release(&table, &s);
        return cli_usage(argv[0], CLI_NO_MODEL);
    }
    buf_init(&out, 1 << 24);
    json_writer_init(&w, &out);
    json_open(&w, NULL, '{');
    TRY_GOTO(done, model_inspect(s.model, &w, &err));
    put_text(&s, &w);
    json_close(&w, '}');
    if (s.json) {
        cli_print_json(&out);
    } else {
        cJSON *root = json_parse(buf_z(&out), out.len, &json_limits_file, &err);
        if (root)
            print_value(root, 0);
        else
            rc = err.code;
        cJSON_Delete(root);
    }
done:
    buf_release(&out);
    config_release(&table, &s);
    return rc < 0 ? cli_fail(&err) : CLI_OK;
}
