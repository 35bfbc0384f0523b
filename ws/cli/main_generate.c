// parley generate: continues a prompt once. Streams text to standard output, or prints one JSON
// object.
#include "base/json.h"
#include "ws/cli/cli.h"
#include "ws/cli/terminal.h"
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TOKENS = 128 };

struct settings {
    struct cli_model model;
    struct sampling_options sampling;
    char *ids, *prompt;
    bool json, chat;
};
static const struct config_key keys[] = {
    {"prompt", "ids", CONFIG_STRING, offsetof(struct settings, ids), 0, 0, 0, "",
     "Prompt as token ids: 1,2,3.", 0},
    {"prompt", "prompt", CONFIG_STRING, offsetof(struct settings, prompt), 0, 0, 0, "",
     "Prompt as text, with special tokens; - reads standard input.", 0},
    {"prompt", "chat", CONFIG_BOOL, offsetof(struct settings, chat), 0, 0, 0, "off",
     "Send the prompt as a user message, through the chat template.", 0},
    {"output", "json", CONFIG_BOOL, offsetof(struct settings, json), 0, 0, 0, "off",
     "Print {\"ids\",\"text\",\"logprobs\",\"finish_reason\"}.", 0},
};

static const struct config_table *options(void) {
    const struct config_table *table = cli_table(keys, sizeof keys / sizeof *keys);
    cli_table_sampling(offsetof(struct settings, sampling));
    cli_table_model(offsetof(struct settings, model), CLI_COMPUTE_EXACT);
    return table;
}

struct result {
    struct token_list ids;
    struct buf text;
    float *logprobs;
    size_t n_logprobs;
};

static int prompt_ids(const struct settings *s, const struct engine *e, struct token_list *ids,
                      struct err *err) {
    if (s->ids[0]) return cli_parse_ids(s->ids, ids, err);
    struct buf text;
    int rc;
    if (!strcmp(s->prompt, "-")) {
        TRY_GOTO(out, cli_read_stdin(&text, CLI_STDIN_BYTES, err));
    } else {
        buf_init(&text, strlen(s->prompt) + 1);
        TRY_GOTO(out, buf_addz(&text, s->prompt));
    }
    if (s->chat) {
        struct engine_message message = {"user", buf_z(&text)};
        rc = engine_render_turn(e, &message, 1, -1, ids, err);
    } else {
        rc = engine_tokenize(e, buf_z(&text), text.len, true, ids, err);
    }
out:
    buf_release(&text);
    return rc;
}

static int take_token(struct result *r, const struct engine_event *ev) {
    if (ev->id < 0) return 0;
    float *grown = realloc(r->logprobs, (r->n_logprobs + 1) * sizeof *grown);
    if (!grown) return E_NOMEM;
    r->logprobs = grown;
    r->logprobs[r->n_logprobs++] = ev->logprob;
    return token_list_push(&r->ids, ev->id);
}

static int run_turn(const struct settings *s, struct engine *e, struct engine_turn *turn,
                    struct token_list *ids, struct result *r, enum engine_finish *finish,
                    struct err *err) {
    turn->n_ids = turn->n_input = (int64_t)ids->len;
    turn->ids = ids->ids;
    TRY(engine_turn_submit(e, turn, err));
    token_list_init(ids); // now owned by the engine
    struct engine_event ev;
    do {
        TRY(engine_wait(e, &ev, -1));
        if (ev.kind != ENGINE_TOKEN && ev.kind != ENGINE_DONE) continue;
        if (ev.kind == ENGINE_DONE && ev.finish == FINISH_ERROR)
            return err_set(err, ev.error_code, "%.*s", (int)ev.text_len, ev.text);
        if (ev.kind == ENGINE_TOKEN && take_token(r, &ev) < 0)
            return err_set(err, E_NOMEM, "out of memory for the answer");
        buf_add(&r->text, ev.text, ev.text_len);
        if (!s->json) {
            terminal_or_pipe(stdout, ev.text, ev.text_len);
            fflush(stdout);
        }
    } while (ev.kind != ENGINE_DONE);
    *finish = ev.finish;
    return r->text.error ? err_set(err, r->text.error, "the answer is too long for memory") : 0;
}

static void print_result(const struct result *r, enum engine_finish finish) {
    struct buf out;
    struct json_writer w;
    buf_init(&out, 1 << 30);
    json_writer_init(&w, &out);
    json_open(&w, NULL, '{');
    json_open(&w, "ids", '[');
    for (size_t i = 0; i < r->ids.len; i++) json_put_int(&w, NULL, r->ids.ids[i]);
    json_close(&w, ']');
    json_put_text(&w, "text", buf_z(&r->text), r->text.len);
    json_open(&w, "logprobs", '[');
    for (size_t i = 0; i < r->n_logprobs; i++) json_put_double(&w, NULL, (double)r->logprobs[i]);
    json_close(&w, ']');
    json_put_string(&w, "finish_reason", engine_finish_name(finish));
    json_close(&w, '}');
    cli_print_json(&out);
}

// Greedy and DEFAULT_TOKENS long, unless options say otherwise. Without a seed the engine draws one.
static int take_sampling(const struct settings *s, struct sampling_params *out, struct err *err) {
    struct turn_sampling t;
    turn_sampling_init(&t);
    t.params.temperature = 0;
    t.params.max_tokens = DEFAULT_TOKENS;
    TRY(sampling_options_apply(&s->sampling, SAMPLING_COMMAND, &t, err));
    if (t.params.max_tokens < 1) return err_set(err, E_INVAL, "--max-tokens must be at least 1");
    *out = t.params;
    return 0;
}

int main_generate(int argc, char **argv) {
    const struct config_table *table = options();
    struct settings s;
    struct engine *e = NULL;
    struct err err = {0};
    struct token_list ids;
    struct result r = {0};
    enum engine_finish finish = FINISH_ERROR;
    int n_words,
        rc = cli_parse(
            table, &s, argc, argv, "generate --model DIR (--ids 1,2,3 | --prompt TEXT) [OPTIONS]",
            "Continues a prompt once. Without sampling options it is greedy and stops after 128\n"
            "tokens.",
            NULL, 0, &n_words);
    if (rc != CLI_PARSED) return rc == CLI_HELP_SHOWN ? CLI_OK : rc;
    if (!s.model.model[0] || !s.ids[0] == !s.prompt[0]) {
        rc = cli_usage(argv[0],
                       s.model.model[0] ? "give exactly one of --ids and --prompt" : CLI_NO_MODEL);
        config_release(table, &s);
        return rc;
    }
    struct engine_turn turn = {.sequence = 1, .turn = 1, .goes_on = !s.chat};
    if (take_sampling(&s, &turn.sampling, &err) < 0) {
        config_release(table, &s);
        return cli_usage(argv[0], "%s", err.text);
    }
    token_list_init(&ids);
    token_list_init(&r.ids);
    buf_init(&r.text, 1 << 28);
    TRY_GOTO(out, cli_engine_open(&e, &s.model, 1, &err));
    TRY_GOTO(out, prompt_ids(&s, e, &ids, &err));
    cli_turn_window(&s.model, e, &turn);
    TRY_GOTO(out, run_turn(&s, e, &turn, &ids, &r, &finish, &err));
    if (s.json)
        print_result(&r, finish);
    else
        putchar('\n');
out:
    if (e) engine_close(e);
    token_list_release(&ids);
    token_list_release(&r.ids);
    buf_release(&r.text);
    free(r.logprobs);
    config_release(table, &s);
    return rc < 0 ? cli_fail(&err) : CLI_OK;
}
