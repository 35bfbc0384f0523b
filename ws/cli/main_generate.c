// parley generate: continues a prompt once. Streams text to standard output, or prints one JSON
// object.
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
#define SETTINGS struct settings
static const struct config_key keys[] = {
    TEXT("prompt", ids, "", NULL, "Prompt as token ids: 1,2,3."),
    TEXT("prompt", prompt, "", NULL,
         "Prompt as text, with special tokens; - reads standard input."),
    BOOL("prompt", chat, "off", "Send the prompt as a user message, through the chat template."),
    BOOL("output", json, "off", "Print {\"ids\",\"text\",\"logprobs\",\"finish_reason\"}."),
};

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
                    const struct token_list *ids, struct result *r, enum engine_finish *finish,
                    struct err *err) {
    struct engine_event ev;
    turn->n_input = (int64_t)ids->len;
    TRY(cli_submit(e, &s->model, turn, ids->ids, (int64_t)ids->len, err));
    do {
        TRY(engine_wait(e, &ev, -1));
        if (ev.kind != ENGINE_TOKEN && ev.kind != ENGINE_DONE) continue;
        if (ev.kind == ENGINE_DONE) TRY(cli_check_done(&ev, err));
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

static int print_result(const struct result *r, enum engine_finish finish, struct err *err) {
    struct cli_json j;
    cli_json_begin(&j);
    json_put_ids(&j.w, "ids", r->ids.ids, r->ids.len);
    json_put_text(&j.w, "text", buf_z(&r->text), r->text.len);
    json_put_floats(&j.w, "logprobs", r->logprobs, r->n_logprobs);
    json_put_string(&j.w, "finish_reason", engine_finish_name(finish));
    return cli_json_end(&j, err);
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

static int run(void *settings, char **words, struct err *err) {
    const struct settings *s = settings;
    struct engine *e = NULL;
    struct token_list ids;
    struct result r = {0};
    struct engine_turn turn = {.sequence = 1, .turn = 1, .goes_on = !s->chat};
    enum engine_finish finish = FINISH_ERROR;
    int rc;
    if (!s->model.model[0]) return cli_usage(err, CLI_NO_MODEL);
    if (!s->ids[0] == !s->prompt[0])
        return cli_usage(err, "give exactly one of --ids and --prompt");
    if (take_sampling(s, &turn.sampling, err) < 0) return CLI_USAGE;
    token_list_init(&ids);
    token_list_init(&r.ids);
    buf_init(&r.text, 1 << 28);
    TRY_GOTO(out, cli_engine_open(&e, &s->model, 1, err));
    TRY_GOTO(out, prompt_ids(s, e, &ids, err));
    TRY_GOTO(out, run_turn(s, e, &turn, &ids, &r, &finish, err));
    if (s->json)
        rc = print_result(&r, finish, err);
    else
        putchar('\n');
out:
    engine_close(e);
    token_list_release(&ids);
    token_list_release(&r.ids);
    buf_release(&r.text);
    free(r.logprobs);
    return rc;
}

const struct cli_command command_generate = {
    .name = "generate",
    .summary = "continue a prompt once",
    .usage = "generate --model DIR (--ids 1,2,3 | --prompt TEXT) [OPTIONS]",
    .about = "Continues a prompt once. Without sampling options it is greedy and stops after 128\n"
             "tokens.",
    CLI_SETTINGS(keys),
    .compute = {CLI_COMPUTE_EXACT},
    .sampling_offset = offsetof(struct settings, sampling),
    .run = run,
};
