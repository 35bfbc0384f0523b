// parley eval: how well a model does on a file of items: the last word of texts (LAMBADA), questions
// about a text (SQuAD), or the next token of any text (perplexity). Several items run at once; the
// result of each is kept in a file, so that a run that was stopped goes on.
#include "base/json_form.h"
#include "ws/cli/eval_items.h"
#include "ws/cli/eval_results.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_TOKENS = 1024, WAIT_US = 200000 };

struct settings {
    struct model_settings model;
    char *data, *results, *prompt_task;
    int64_t batch, max_tokens;
    bool json;
};
#define SETTINGS struct settings
static const struct config_key keys[] = {
    TEXT("eval", data, "", "FILE", "Items: JSON lines or a text; of squad also SQuAD's own file."),
    TEXT("eval", results, "", "FILE",
         "Results for each item. A second run of the same evaluation continues them. If not "
         "given: DATA.TASK-MODEL.jsonl."),
    TEXT("eval", prompt_task, "", "NAME|DIR",
         "A task of --prompt-tasks or of the checkpoint, or a folder of prompt learning, whose "
         "virtual tokens precede each item; they are not scored."),
    INT("eval", batch, 1, 256, "8", "Items computed at once."),
    INT("eval", max_tokens, 1, 4096, "32", "Longest answer of squad, in tokens."),
    BOOL("eval", json, "off", "Print the result as JSON."),
};

// An item that is computed: scored on the engine's thread, read after its last event.
struct running {
    struct eval_item *item; // NULL: the place is free
    size_t number;
    int32_t n_vocab;
    double logprob;
    bool correct, broken;
    struct buf answer;
};

struct evaluation {
    const struct settings *s;
    enum eval_task task;
    struct engine *engine;
    struct prompt *prompt; // NULL: none
    struct eval_items items;
    struct eval_results results;
    struct running *running; // (batch)
    int64_t n_running;
    size_t next;
};

// --- one item ---

// Scores a token: its log-probability, and whether it is the likeliest.
static void score_position(void *ctx, int64_t position, const float *logits) {
    struct running *r = ctx;
    const struct eval_item *item = r->item;
    if (position + 1 >= item->n_ids || position + 1 < item->n_ids - item->n_scored) return;
    int32_t want = item->ids[position + 1], best = 0;
    double sum = 0;
    for (int32_t i = 1; i < r->n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    for (int32_t i = 0; i < r->n_vocab; i++) sum += exp((double)logits[i] - (double)logits[best]);
    r->broken = r->broken || !isfinite(sum);
    r->logprob += (double)logits[want] - (double)logits[best] - log(sum);
    r->correct = r->correct && best == want;
}

static int begin_item(struct evaluation *v, struct running *r, struct err *err) {
    struct eval_item *item = &v->items.list[v->next];
    struct engine_turn turn = {
        .sequence = v->next + 1, .turn = v->next + 1, .n_input = item->n_ids, .goes_on = true};
    turn.prompt = v->prompt;
    sampling_params_init(&turn.sampling);
    turn.sampling.temperature = 0;
    r->number = v->next++;
    r->item = item;
    r->logprob = 0;
    r->correct = true;
    r->broken = false;
    buf_reset(&r->answer);
    if (v->task == EVAL_SQUAD) {
        turn.sampling.max_tokens = (int32_t)v->s->max_tokens;
        TRY(sampling_words_add_text(&turn.sampling.stop, "stop", "\n", 1, err));
    } else {
        turn.score_only = true;
        turn.on_logits = score_position;
        turn.on_logits_ctx = r;
    }
    int rc = cli_submit(v->engine, &v->s->model, &turn, item->ids, item->n_ids, err);
    if (rc < 0)
        r->item = NULL;
    else
        v->n_running++;
    return rc;
}

static char *trimmed(const struct buf *text) {
    const char *from = buf_z(text), *end = from + text->len;
    while (from < end && strchr(" \t\r\n", *from)) from++;
    while (end > from && strchr(" \t\r\n", end[-1])) end--;
    return strndup(from, (size_t)(end - from));
}

static int end_item(struct evaluation *v, struct running *r, struct err *err) {
    struct eval_item *item = r->item;
    struct eval_result result = {.logprob = r->logprob, .correct = r->correct};
    r->item = NULL;
    v->n_running--;
    engine_sequence_release(v->engine, r->number + 1);
    if (r->broken)
        return err_set(err, E_INTERNAL, "the model's logits of item %zu are not finite",
                       r->number + 1);
    if (v->task == EVAL_SQUAD) {
        result.answer = r->answer.error ? NULL : trimmed(&r->answer);
        if (!result.answer) return err_set(err, E_NOMEM, "out of memory for an answer");
        result.correct = false;
        for (size_t i = 0; i < item->n_answers; i++) {
            result.correct = result.correct || eval_exact(result.answer, item->answers[i]);
            result.f1 = fmax(result.f1, eval_f1(result.answer, item->answers[i]));
        }
    }
    return eval_results_add(&v->results, r->number, &result, err);
}

// --- all of them ---

static struct running *find_running(struct evaluation *v, uint64_t turn) {
    for (int64_t i = 0; i < v->s->batch; i++)
        if (v->running[i].item && v->running[i].number + 1 == turn) return &v->running[i];
    return NULL;
}

static int fill(struct evaluation *v, struct err *err) {
    for (int64_t i = 0; i < v->s->batch; i++) {
        while (v->next < v->items.n && v->results.list[v->next].done) v->next++;
        if (v->next == v->items.n) return 0;
        if (!v->running[i].item) TRY(begin_item(v, &v->running[i], err));
    }
    return 0;
}

static int compute(struct evaluation *v, struct err *err) {
    const volatile sig_atomic_t *stop = cli_stop_on_signal();
    struct engine_event ev;
    for (;;) {
        TRY(fill(v, err));
        if (v->n_running == 0) return 0;
        int got = engine_wait(v->engine, &ev, WAIT_US);
        if (*stop)
            return err_set(err, E_CLOSED,
                           "stopped: %zu of %zu items are done; run it again to go on",
                           v->results.n_done, v->results.n);
        if (got != 1) continue;
        struct running *r = find_running(v, ev.turn);
        if (!r || (ev.kind != ENGINE_TOKEN && ev.kind != ENGINE_DONE)) continue;
        if (ev.kind == ENGINE_DONE) TRY(cli_check_done(&ev, err));
        buf_add(&r->answer, ev.text, ev.text_len);
        if (ev.kind != ENGINE_DONE) continue;
        TRY(end_item(v, r, err));
        cli_progress("evaluating", (int64_t)v->results.n_done, (int64_t)v->results.n);
    }
}

// --- the outcome ---

static int print_outcome(const struct evaluation *v, struct err *err) {
    double logprob = 0, f1 = 0, n = (double)v->items.n;
    int64_t correct = 0, n_scored = 0;
    for (size_t i = 0; i < v->items.n; i++) {
        const struct eval_result *r = &v->results.list[i];
        logprob += r->logprob;
        f1 += r->f1;
        correct += r->correct;
        n_scored += v->items.list[i].n_scored;
    }
    struct cli_json j;
    cli_json_begin(&j);
    json_form(&j.w, "task:%s,items:%zu,resumed:%zu,cut:%ld", eval_task_names[v->task], v->items.n,
              v->results.n_found, v->items.n_cut);
    if (v->task == EVAL_LAMBADA) {
        json_form(&j.w, "accuracy:%g,perplexity:%g", (double)correct / n, exp(-logprob / n));
    } else if (v->task == EVAL_SQUAD) {
        json_form(&j.w, "exact_match:%g,f1:%g", 100 * (double)correct / n, 100 * f1 / n);
    } else {
        json_form(&j.w, "tokens:%ld,logprob:%g,perplexity:%g,bits_per_byte:%g", n_scored, logprob,
                  exp(-logprob / (double)n_scored), -logprob / log(2) / (double)v->items.n_bytes);
    }
    if (v->s->json) return cli_json_end(&j, err);
    buf_release(&j.out);
    printf("%zu items (%zu of them from %s), %lld cut\n", v->items.n, v->results.n_found,
           v->results.path, (long long)v->items.n_cut);
    if (v->task == EVAL_LAMBADA)
        printf("accuracy %.4f, perplexity %.4f\n", (double)correct / n, exp(-logprob / n));
    else if (v->task == EVAL_SQUAD)
        printf("exact match %.2f %%, F1 %.2f %%\n", 100 * (double)correct / n, 100 * f1 / n);
    else
        printf("perplexity %.4f over %lld tokens\n", exp(-logprob / (double)n_scored),
               (long long)n_scored);
    return 0;
}

// --- begin and end ---

// The header of a file of results: everything that can change a result.
static void put_header(const struct evaluation *v, int64_t piece, struct buf *out) {
    const struct model_settings *m = &v->s->model;
    const struct engine_info *info = engine_info(v->engine);
    struct json_writer w;
    json_writer_init(&w, out);
    json_form(&w,
              "{eval:%s,model:%s,data:%lu,items:%zu,backend:%s,weights:%s,kv:%s,compute:%s,"
              "session_len:%ld,memory_len:%ld,sink_len:%ld",
              eval_task_names[v->task], info->fingerprint, v->items.data_id, v->items.n,
              info->backend, info->weight_dtype, engine_kv_dtype_name(info->kv_dtype),
              m->compute_dtype, m->session_len, m->memory_len, m->sink_len);
    if (v->prompt) json_put_string(&w, "prompt", v->prompt->digits);
    if (v->task == EVAL_SQUAD) json_put_int(&w, "max_tokens", v->s->max_tokens);
    if (v->task == EVAL_PERPLEXITY) json_put_int(&w, "piece", piece);
    json_close(&w, '}');
}

static int open_results(struct evaluation *v, const char *path, int64_t piece, struct err *err) {
    struct buf header;
    buf_init(&header, 1 << 16);
    put_header(v, piece, &header);
    int rc = header.error ? err_set(err, header.error, "out of memory for the results")
                          : eval_results_open(&v->results, path, buf_z(&header), v->items.n, err);
    buf_release(&header);
    return rc;
}

// Puts the task's virtual tokens before every item.
static int add_task(struct evaluation *v, struct err *err) {
    for (size_t i = 0; v->prompt && i < v->items.n; i++) {
        struct eval_item *item = &v->items.list[i];
        struct token_list ids;
        token_list_init(&ids);
        int rc = cli_push_virtual(v->prompt, &ids, err);
        for (int64_t k = 0; rc == 0 && k < item->n_ids; k++)
            rc = token_list_push(&ids, item->ids[k]);
        if (rc < 0) {
            token_list_release(&ids);
            return err_set(err, rc, "out of memory for the items");
        }
        size_t n;
        free(item->ids);
        item->ids = token_list_take(&ids, &n);
        item->n_ids = (int64_t)n;
        token_list_release(&ids);
    }
    return 0;
}

static int evaluate(struct evaluation *v, struct err *err) {
    const struct settings *s = v->s;
    TRY(cli_prompt(v->engine, s->prompt_task, &v->prompt, err));
    int64_t n_virtual = v->prompt ? v->prompt->n_rows : 0;
    const struct engine_info *info = engine_info(v->engine);
    int64_t longest = s->model.session_len ? s->model.session_len : info->max_session_len;
    if (longest > info->max_session_len) longest = info->max_session_len;
    int64_t piece = s->model.session_len || longest < PIECE_TOKENS ? longest : PIECE_TOKENS;
    if (v->task == EVAL_SQUAD) longest -= s->max_tokens + 1;
    longest -= n_virtual;
    if (piece > longest) piece = longest;
    if (longest < 2)
        return err_set(err, E_INVAL,
                       "--session-len leaves no room beside --max-tokens and the task");
    TRY(eval_items_read(&v->items, v->task, s->data, v->engine, longest, piece, err));
    TRY(add_task(v, err));
    char path[4096];
    snprintf(path, sizeof path, "%s.%s-%.12s.jsonl", s->data, eval_task_names[v->task],
             info->fingerprint);
    TRY(open_results(v, s->results[0] ? s->results : path, piece, err));
    v->running = calloc((size_t)s->batch, sizeof *v->running);
    if (!v->running) return err_set(err, E_NOMEM, "out of memory for the items");
    for (int64_t i = 0; i < s->batch; i++) {
        v->running[i].n_vocab = info->n_vocab;
        buf_init(&v->running[i].answer, 1 << 20);
    }
    int rc = compute(v, err);
    if (rc == 0) rc = print_outcome(v, err);
    return rc;
}

static const char *task_name(int i) {
    return i < N_EVAL_TASKS ? eval_task_names[i] : NULL;
}

static int run(void *settings, char **words, struct err *err) {
    const struct settings *s = settings;
    const int task = cli_word(&command_eval, words[0]);
    struct evaluation v = {.s = s, .task = (enum eval_task)task};
    if (task < 0) return cli_usage(err, "say what: lambada, squad or perplexity");
    if (!s->model.model[0]) return cli_usage(err, CLI_NO_MODEL);
    if (!s->data[0]) return cli_usage(err, "--data is missing: the file of items");
    int rc = cli_engine_open(&v.engine, &s->model, (int)s->batch, err);
    if (rc == 0) rc = evaluate(&v, err);
    engine_close(v.engine); // before the memory that running items write to is freed
    int closed = eval_results_close(&v.results, err);
    for (int64_t i = 0; v.running && i < s->batch; i++) buf_release(&v.running[i].answer);
    free(v.running);
    eval_items_release(&v.items);
    prompt_free(v.prompt);
    return rc < 0 ? rc : closed;
}

const struct cli_command command_eval = {
    .name = "eval",
    .summary = "measure a model: lambada, squad or perplexity",
    .usage = "eval lambada|squad|perplexity --model MODEL --data FILE [OPTIONS]",
    .about =
        "Measures a model on a file of items.\n"
        "  lambada     the last word of each text: accuracy, and perplexity by word\n"
        "  squad       greedy answers to questions about a text: exact match and F1, in percent\n"
        "  perplexity  the next token of a text, in pieces of --session-len tokens (default 1024)\n"
        "Results are kept for each item: to continue a run that was stopped, start it again.",
    CLI_SETTINGS(keys),
    .compute = {CLI_COMPUTE_EXACT},
    .max_words = 1,
    .word = task_name,
    .run = run,
};
