// parley tokenize: converts text to ids, ids to text, and conversations to both. Loads the
// tokenizer but no weights.
#include "base/json.h"
#include "engine/model/text_files.h"
#include "engine/text/chat_template.h"
#include "ws/cli/cli.h"
#include <stdlib.h>

struct settings {
    char *model, *chat_template;
    bool json, decode, special, chat;
};
static const struct config_key keys[] = {
    {"", "model", CONFIG_STRING, offsetof(struct settings, model), 0, 0, 0, "",
     "Model folder (required).", 0},
    {"", "decode", CONFIG_BOOL, offsetof(struct settings, decode), 0, 0, 0, "off",
     "Read {\"ids\":[...]}, print {\"text\":\"...\"}.", 0},
    {"", "special", CONFIG_BOOL, offsetof(struct settings, special), 0, 0, 0, "on",
     "Recognise special tokens; --no-special reads them as plain text.", 0},
    {"", "chat", CONFIG_BOOL, offsetof(struct settings, chat), 0, 0, 0, "off",
     "Read {\"messages\":[{\"role\",\"content\"}],\"add_generation_prompt\":true}, print "
     "{\"text\",\"ids\"}.",
     0},
    {"", "chat_template", CONFIG_STRING, offsetof(struct settings, chat_template), 0, 0, 0, "",
     "With --chat: template to use instead of the model's own, a built-in name or a file.", 0},
    {"", "json", CONFIG_BOOL, offsetof(struct settings, json), 0, 0, 0, "off",
     "Print {\"ids\":[...]}.", 0},
};
static const struct config_table table = {keys, sizeof keys / sizeof *keys};

static void put_ids(struct json_writer *w, const struct token_list *ids) {
    json_open(w, "ids", '[');
    for (size_t i = 0; i < ids->len; i++) json_put_int(w, NULL, ids->ids[i]);
    json_close(w, ']');
}

static int encode(const struct settings *s, const struct tokenizer *t, const struct buf *in,
                  struct buf *out, struct err *err) {
    struct encode_options options = {.no_special = !s->special};
    struct token_list ids;
    token_list_init(&ids);
    int rc = tokenizer_encode(t, buf_z(in), in->len, &options, &ids, err);
    if (rc == 0 && s->json) {
        struct json_writer w;
        json_writer_init(&w, out);
        json_open(&w, NULL, '{');
        put_ids(&w, &ids);
        json_close(&w, '}');
    } else if (rc == 0) {
        for (size_t i = 0; i < ids.len; i++) buf_addf(out, i ? " %d" : "%d", ids.ids[i]);
    }
    token_list_release(&ids);
    return rc;
}

static int read_ids(const cJSON *root, struct token_list *ids, struct err *err) {
    const cJSON *array = NULL, *item;
    int rc = json_get_array(root, "ids", &array, err);
    if (rc <= 0) return rc < 0 ? rc : err_set(err, E_FORMAT, "standard input has no \"ids\"");
    cJSON_ArrayForEach(item, array) {
        double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(v >= 0 && v <= INT32_MAX) || v != (double)(int32_t)v)
            return err_set(err, E_FORMAT, "\"ids\" must be a list of token ids");
        if (token_list_push(ids, (int32_t)v) < 0)
            return err_set(err, E_NOMEM, "out of memory for the ids");
    }
    return 0;
}

static int decode(const struct settings *s, const struct tokenizer *t, const struct buf *in,
                  struct buf *out, struct err *err) {
    struct token_list ids;
    struct buf text;
    struct json_writer w;
    int rc;
    token_list_init(&ids);
    buf_init(&text, 1 << 30);
    cJSON *root = json_parse(buf_z(in), in->len, &json_limits_file, err);
    if (!root) return err->code;
    TRY_GOTO(out, read_ids(root, &ids, err));
    TRY_GOTO(out, tokenizer_decode(t, ids.ids, ids.len, !s->special, &text, err));
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_put_text(&w, "text", buf_z(&text), text.len);
    json_close(&w, '}');
out:
    cJSON_Delete(root);
    token_list_release(&ids);
    buf_release(&text);
    return rc;
}

static int read_messages(const cJSON *root, struct chat_message **out, size_t *n, struct err *err) {
    const cJSON *array = NULL, *item;
    int rc = json_get_array(root, "messages", &array, err);
    if (rc <= 0) return rc < 0 ? rc : err_set(err, E_FORMAT, "standard input has no \"messages\"");
    *out = calloc((size_t)cJSON_GetArraySize(array) + 1, sizeof **out);
    if (!*out) return err_set(err, E_NOMEM, "out of memory for the messages");
    cJSON_ArrayForEach(item, array) {
        struct chat_message *m = &(*out)[(*n)++];
        if ((rc = json_get_string(item, "role", &m->role, err)) < 0) return rc;
        if ((rc = json_get_string(item, "content", &m->content, err)) < 0) return rc;
        if (!m->role || !m->content)
            return err_set(err, E_FORMAT, "message %zu has no \"role\" or no \"content\"", *n);
    }
    return 0;
}

static int chat(const struct settings *s, const struct tokenizer *t, const struct buf *in,
                struct buf *out, struct err *err) {
    char dir[PATH_MAX];
    struct chat_template *template = NULL;
    struct chat_message *messages = NULL;
    struct token_list ids;
    struct buf text;
    struct json_writer w;
    size_t n = 0;
    bool prompt = true;
    int rc;
    token_list_init(&ids);
    buf_init(&text, 1 << 30);
    cJSON *root = json_parse(buf_z(in), in->len, &json_limits_file, err);
    if (!root) return err->code;
    TRY_GOTO(out, json_get_bool(root, "add_generation_prompt", &prompt, err));
    TRY_GOTO(out, read_messages(root, &messages, &n, err));
    TRY_GOTO(out, text_files_dir(dir, s->model, err));
    TRY_GOTO(out, chat_template_open(&template, dir, s->chat_template[0] ? s->chat_template : NULL,
                                     t, err));
    TRY_GOTO(out,
             chat_template_render(template, messages, n, prompt, s->special, &ids, &text, err));
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_put_text(&w, "text", buf_z(&text), text.len);
    put_ids(&w, &ids);
    json_close(&w, '}');
out:
    chat_template_close(template);
    free(messages);
    cJSON_Delete(root);
    token_list_release(&ids);
    buf_release(&text);
    return rc;
}

int main_tokenize(int argc, char **argv) {
    struct settings s;
    struct tokenizer *t = NULL;
    struct buf in, out;
    struct err err = {0};
    char dir[PATH_MAX];
    int n_words,
        rc = cli_parse(
            &table, &s, argc, argv, "tokenize --model DIR [--json] < TEXT",
            "Reads text from standard input and prints token ids; --decode does the reverse.", NULL,
            0, &n_words);
    if (rc != CLI_PARSED) return rc == CLI_HELP_SHOWN ? CLI_OK : rc;
    if (!s.model[0] || (s.decode && s.chat)) {
        rc = cli_usage(argv[0], s.model[0] ? "give only one of --decode and --chat" : CLI_NO_MODEL);
        config_release(&table, &s);
        return rc;
    }
    buf_init(&in, 0);
    buf_init(&out, 1 << 30);
    TRY_GOTO(done, text_files_dir(dir, s.model, &err));
    TRY_GOTO(done, tokenizer_open(&t, dir, &err));
    TRY_GOTO(done, cli_read_stdin(&in, CLI_STDIN_BYTES, &err));
    TRY_GOTO(done, (s.decode ? decode : s.chat ? chat : encode)(&s, t, &in, &out, &err));
    if (out.error)
        rc = err_set(&err, out.error, "out of memory for the result");
    else
        cli_print_json(&out);
done:
    tokenizer_close(t);
    buf_release(&in);
    buf_release(&out);
    config_release(&table, &s);
    return rc < 0 ? cli_fail(&err) : CLI_OK;
}
