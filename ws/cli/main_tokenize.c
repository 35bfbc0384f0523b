// parley tokenize: converts text to ids, ids to text, and conversations to both. Loads the
// tokenizer but no weights.
#include "engine/model/text_files.h"
#include "engine/text/chat_template.h"
#include "ws/cli/cli.h"
#include <stdlib.h>

struct settings {
    char *model, *tokenizer, *chat_template;
    bool json, decode, special, chat;
};
#define SETTINGS struct settings
static const struct config_key keys[] = {
    TEXT("", model, "", MODEL_VALUE, "Model (required): " MODEL_VALUE_HELP "."),
    BOOL("", decode, "off", "Read {\"ids\":[...]}, print {\"text\":\"...\"}."),
    BOOL("", special, "on", "Recognise special tokens; --no-special reads them as plain text."),
    BOOL("", chat, "off",
         "Read {\"messages\":[{\"role\",\"content\"}],\"add_generation_prompt\":true}, print "
         "{\"text\",\"ids\"}."),
    TEXT("", tokenizer, "", MODEL_VALUE,
         "Model whose tokenizer and chat template to use instead of the model's own."),
    TEXT("", chat_template, "", "NAME|FILE",
         "With --chat: template to use instead of the model's own, a built-in name or a file."),
    BOOL("", json, "off", "Print {\"ids\":[...]}."),
};

// {"text","ids"}; without a text, or without ids, the other alone.
static void put_result(struct buf *out, const struct buf *text, const struct token_list *ids) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    if (text) json_put_text(&w, "text", buf_z(text), text->len);
    if (ids) json_put_ids(&w, "ids", ids->ids, ids->len);
    json_close(&w, '}');
}

static int encode(const struct settings *s, const struct tokenizer *t, const struct buf *in,
                  struct buf *out, struct err *err) {
    struct encode_options options = {.no_special = !s->special};
    struct token_list ids;
    token_list_init(&ids);
    int rc = tokenizer_encode(t, buf_z(in), in->len, &options, &ids, err);
    if (rc == 0 && s->json) put_result(out, NULL, &ids);
    for (size_t i = 0; rc == 0 && !s->json && i < ids.len; i++)
        buf_addf(out, i ? " %d" : "%d", ids.ids[i]);
    token_list_release(&ids);
    return rc;
}

static int decode(const struct settings *s, const struct tokenizer *t, const struct buf *in,
                  struct buf *out, struct err *err) {
    const cJSON *array = NULL;
    int32_t *ids = NULL;
    size_t n;
    struct buf text;
    int rc;
    buf_init(&text, 1 << 30);
    cJSON *root = json_parse(buf_z(in), in->len, &json_limits_file, err);
    if (!root) return err->code;
    TRY_GOTO(out, json_get_array(root, "ids", &array, err));
    if (!array) TRY_GOTO(out, err_set(err, E_FORMAT, "standard input has no \"ids\""));
    TRY_GOTO(out, json_copy_ids(array, "ids", &ids, &n, err));
    TRY_GOTO(out, tokenizer_decode(t, ids, n, !s->special, &text, err));
    put_result(out, &text, NULL);
out:
    cJSON_Delete(root);
    free(ids);
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
    size_t n = 0;
    bool prompt = true;
    int rc;
    token_list_init(&ids);
    buf_init(&text, 1 << 30);
    cJSON *root = json_parse(buf_z(in), in->len, &json_limits_file, err);
    if (!root) return err->code;
    TRY_GOTO(out, json_get_bool(root, "add_generation_prompt", &prompt, err));
    TRY_GOTO(out, read_messages(root, &messages, &n, err));
    TRY_GOTO(out, text_files_dir(dir, s->model, s->tokenizer, err));
    TRY_GOTO(out, chat_template_open(&template, dir, s->chat_template[0] ? s->chat_template : NULL,
                                     t, err));
    TRY_GOTO(out,
             chat_template_render(template, messages, n, prompt, s->special, &ids, &text, err));
    put_result(out, &text, &ids);
out:
    chat_template_close(template);
    free(messages);
    cJSON_Delete(root);
    token_list_release(&ids);
    buf_release(&text);
    return rc;
}

static int run(void *settings, char **words, struct err *err) {
    const struct settings *s = settings;
    struct tokenizer *t = NULL;
    struct buf in, out;
    char dir[PATH_MAX];
    int rc;
    if (!s->model[0]) return cli_usage(err, CLI_NO_MODEL);
    if (s->decode && s->chat) return cli_usage(err, "give only one of --decode and --chat");
    buf_init(&in, 0);
    buf_init(&out, 1 << 30);
    TRY_GOTO(done, text_files_dir(dir, s->model, s->tokenizer, err));
    TRY_GOTO(done, tokenizer_open(&t, dir, err));
    TRY_GOTO(done, cli_read_stdin(&in, CLI_STDIN_BYTES, err));
    TRY_GOTO(done, (s->decode ? decode : s->chat ? chat : encode)(s, t, &in, &out, err));
    if (out.error)
        rc = err_set(err, out.error, "out of memory for the result");
    else
        cli_print_json(&out);
done:
    tokenizer_close(t);
    buf_release(&in);
    buf_release(&out);
    return rc;
}

const struct cli_command command_tokenize = {
    .name = "tokenize",
    .summary = "convert text to token ids and back",
    .usage = "tokenize --model MODEL [--json] < TEXT",
    .about = "Reads text from standard input and prints token ids; --decode does the reverse.",
    CLI_SETTINGS(keys),
    .needs_text_only = true,
    .run = run,
};
