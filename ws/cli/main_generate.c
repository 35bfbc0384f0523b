// parley generate: continues a prompt once. Streams text to standard output, or prints one JSON
// object.
#include "base/array.h"
#include "base/json_form.h"
#include "ws/cli/cli.h"
#include "ws/cli/terminal.h"
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TOKENS = 128 };

struct settings {
    struct model_settings model;
    struct sampling_options sampling;
    char *ids, *prompt, *prompt_task;
    bool json, chat;
};
#define SETTINGS struct settings
static const struct config_key keys[] = {
    TEXT("prompt", ids, "", NULL, "Prompt as token ids: 1,2,3."),
    TEXT("prompt", prompt, "", NULL,
         "Prompt as text, with special tokens; - reads standard input."),
    TEXT("prompt", prompt_task, "", "NAME|DIR",
         "A task of --prompt-tasks or of the checkpoint, or a folder of prompt learning (PEFT: "
         "prompt tuning, p-tuning, prefix tuning); its virtual tokens precede the prompt."),
    BOOL("prompt", chat, "off", "Send the prompt as a user message, through the chat template."),
    BOOL("output", json, "off",
         "Print {\"ids\",\"text\",\"logprobs\",\"finish_reason\"}, and the context outputs asked "
         "for; with a beam width above 1 also \"beams\":[{\"ids\",\"text\",\"score\"}], best "
         "first; with n above 1 the same as \"samples\", in their order."),
};

struct result {
    struct token_list ids;
    struct buf text;
    float *logprobs;
    size_t n_logprobs;
    double context_logprob;
    float *context_embedding; // (n_embedding)
    size_t n_embedding;
    int64_t n_drafted, n_accepted;
    const struct engine_branches *branches; // borrowed from the turn's last event; NULL: one answer
};

static int prompt_ids(const struct settings *s, const struct engine *e, int32_t start_id,
                      struct token_list *ids, struct err *err) {
    if (s->ids[0]) return cli_parse_ids(s->ids, ids, err);
    if (!s->prompt[0]) return token_list_push(ids, start_id);
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
        rc = engine_tokenize_start(e, buf_z(&text), text.len, ids, err);
    }
out:
    buf_release(&text);
    return rc;
}

// The task's virtual tokens precede the prompt.
static int add_task(const struct settings *s, const struct engine *e, struct token_list *ids,
                    struct prompt **prompt, struct err *err) {
    TRY(cli_prompt(e, s->prompt_task, prompt, err));
    return cli_push_virtual(*prompt, ids, err);
}

static int take_token(struct result *r, const struct engine_event *ev) {
    if (ev->id < 0) return 0;
    TRY(ARRAY_RESIZE(r->logprobs, r->n_logprobs + 1));
    r->logprobs[r->n_logprobs++] = ev->logprob;
    return token_list_push(&r->ids, ev->id);
}

static int take_context(struct result *r, const struct engine_event *done, int32_t width,
                        struct err *err) {
    r->context_logprob = done->context_logprob;
    if (!done->context_embedding) return 0;
    r->context_embedding = malloc((size_t)width * sizeof *r->context_embedding);
    if (!r->context_embedding) return err_set(err, E_NOMEM, "out of memory for the embedding");
    r->n_embedding = (size_t)width;
    for (int32_t i = 0; i < width; i++) r->context_embedding[i] = (float)done->context_embedding[i];
    return 0;
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
        if (ev.kind == ENGINE_TOKEN && ev.branch > 0) continue;
        if (ev.kind == ENGINE_TOKEN && take_token(r, &ev) < 0)
            return err_set(err, E_NOMEM, "out of memory for the answer");
        buf_add(&r->text, ev.text, ev.text_len);
        if (!s->json) {
            terminal_or_pipe(stdout, ev.text, ev.text_len);
            fflush(stdout);
        }
    } while (ev.kind != ENGINE_DONE);
    *finish = ev.finish;
    TRY(take_context(r, &ev, engine_info(e)->width, err));
    r->branches = ev.branches;
    r->n_drafted = ev.n_drafted;
    r->n_accepted = ev.n_accepted;
    return r->text.error ? err_set(err, r->text.error, "the answer is too long for memory") : 0;
}

static void put_branches(struct json_writer *w, const struct engine_branches *branches,
                         const char *name) {
    json_open(w, name, '[');
    for (int32_t i = 0; i < branches->n; i++) {
        const struct engine_branch *b = &branches->of[i];
        json_open(w, NULL, '{');
        json_put_ids(w, "ids", b->ids, (size_t)b->n);
        json_put_text(w, "text", b->text, b->text_len);
        json_put_float(w, "score", (float)b->score);
        json_form(w, "finish_reason:%s}", engine_finish_name(b->finish));
    }
    json_close(w, ']');
}

static int print_result(const struct result *r, const struct sampling_params *p,
                        enum engine_finish finish, struct err *err) {
    struct cli_json j;
    cli_json_begin(&j);
    json_put_ids(&j.w, "ids", r->ids.ids, r->ids.len);
    json_put_text(&j.w, "text", buf_z(&r->text), r->text.len);
    json_put_floats(&j.w, "logprobs", r->logprobs, r->n_logprobs);
    json_put_string(&j.w, "finish_reason", engine_finish_name(finish));
    if (p->context_logprob) json_put_float(&j.w, "context_logprob", (float)r->context_logprob);
    if (p->context_embedding)
        json_put_floats(&j.w, "context_embedding", r->context_embedding, r->n_embedding);
    if (p->draft_tokens > 0) {
        json_form(&j.w, "drafted_tokens:%ld,accepted_draft_tokens:%ld", r->n_drafted,
                  r->n_accepted);
    }
    if (r->branches) put_branches(&j.w, r->branches, p->beam_width > 1 ? "beams" : "samples");
    return cli_json_end(&j, err);
}

// Greedy and DEFAULT_TOKENS long, unless options say otherwise. Without a seed the engine draws one.
static int take_sampling(const struct settings *s, struct sampling_params *out, struct err *err) {
    struct turn_sampling t;
    turn_sampling_init(&t);
    t.params.temperature = 0;
    t.params.max_tokens = DEFAULT_TOKENS;
    int rc = sampling_options_apply(&s->sampling, SAMPLING_COMMAND, &t, err);
    *out = t.params;
    if (rc < 0) return rc;
    if (t.params.max_tokens < 1) return err_set(err, E_INVAL, "--max-tokens must be at least 1");
    return 0;
}

// How many sequences a step computes.
static int n_branches(const struct sampling_params *p) {
    return p->beam_width > p->n ? p->beam_width : p->n;
}

static int run(void *settings, char **words, struct err *err) {
    const struct settings *s = settings;
    struct engine *e = NULL;
    struct prompt *prompt = NULL;
    struct token_list ids;
    struct result r = {0};
    struct engine_turn turn = {.sequence = 1, .turn = 1, .goes_on = !s->chat};
    enum engine_finish finish = FINISH_ERROR;
    int rc;
    if (!s->model.model[0]) return cli_usage(err, CLI_NO_MODEL);
    if (take_sampling(s, &turn.sampling, err) < 0) return CLI_USAGE;
    turn.sampling.stop_in = s->chat ? STOP_IN_ANSWER : STOP_IN_ALL;
    if (s->ids[0] && s->prompt[0]) return cli_usage(err, "give exactly one of --ids and --prompt");
    if (!s->ids[0] && !s->prompt[0] && turn.sampling.start_id < 0)
        return cli_usage(err, "give exactly one of --ids and --prompt, or --start-id");
    token_list_init(&ids);
    token_list_init(&r.ids);
    buf_init(&r.text, 1 << 28);
    TRY_GOTO(out, cli_engine_open(&e, &s->model, n_branches(&turn.sampling), err));
    TRY_GOTO(out, add_task(s, e, &ids, &prompt, err));
    turn.prompt = prompt;
    TRY_GOTO(out, prompt_ids(s, e, turn.sampling.start_id, &ids, err));
    TRY_GOTO(out, run_turn(s, e, &turn, &ids, &r, &finish, err));
    if (s->json)
        rc = print_result(&r, &turn.sampling, finish, err);
    else
        putchar('\n');
    if (!r.text.len && finish == FINISH_EOS && s->prompt[0] && !s->chat)
        fputs(
            "parley: the model ended at once; --chat sends the prompt through its chat template\n",
            stderr);
out:
    engine_close(e);
    prompt_free(prompt);
    grammar_text_free(turn.sampling.grammar);
    token_list_release(&ids);
    token_list_release(&r.ids);
    buf_release(&r.text);
    free(r.logprobs);
    free(r.context_embedding);
    return rc;
}

const struct cli_command command_generate = {
    .name = "generate",
    .summary = "continue a prompt once",
    .usage = "generate --model MODEL (--ids 1,2,3 | --prompt TEXT | --start-id N) [OPTIONS]",
    .about = "Continues a prompt once. Without sampling options it is greedy and stops after 128\n"
             "tokens.",
    CLI_SETTINGS(keys),
    .compute = {CLI_COMPUTE_EXACT},
    .sampling_offset = offsetof(struct settings, sampling),
    .run = run,
};
