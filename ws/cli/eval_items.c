// See eval_items.h.
#include "ws/cli/eval_items.h"

#include "base/xxh64.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define DATA_BYTES ((size_t)1 << 30)

const char *const eval_task_names[N_EVAL_TASKS] = {"lambada", "squad", "perplexity"};

static struct eval_item *add_item(struct eval_items *items, struct err *err) {
    if (items->n == items->cap) {
        size_t cap = items->cap ? items->cap * 2 : 64;
        struct eval_item *grown = realloc(items->list, cap * sizeof *grown);
        if (!grown) {
            err_set(err, E_NOMEM, "out of memory for the items");
            return NULL;
        }
        items->list = grown;
        items->cap = cap;
    }
    items->list[items->n] = (struct eval_item){0};
    return &items->list[items->n++];
}

struct reading {
    struct eval_items *items;
    const struct engine *engine;
    int64_t max_tokens;
    struct err *err;
};

// Tokenizes text as the item's log; leaves out its beginning if it is too long.
static int take_text(struct reading *r, struct eval_item *item, const char *text, size_t len) {
    struct token_list ids;
    size_t n;
    token_list_init(&ids);
    int rc = engine_tokenize(r->engine, text, len, true, &ids, r->err);
    if (rc == 0) item->ids = token_list_take(&ids, &n);
    token_list_release(&ids);
    TRY(rc);
    item->n_ids = (int64_t)n;
    if (item->n_ids <= r->max_tokens) return 0;
    int64_t cut = item->n_ids - r->max_tokens;
    memmove(item->ids, item->ids + cut, (size_t)r->max_tokens * sizeof *item->ids);
    item->n_ids = r->max_tokens;
    r->items->n_cut++;
    return 0;
}

// --- lambada ---

static int count_tokens(struct reading *r, const char *text, size_t len, int64_t *n) {
    struct token_list ids;
    token_list_init(&ids);
    int rc = engine_tokenize(r->engine, text, len, true, &ids, r->err);
    *n = (int64_t)ids.len;
    token_list_release(&ids);
    return rc;
}

static int add_last_word(struct reading *r, const char *text, size_t len) {
    size_t before = len;
    int64_t n, n_before;
    while (before > 0 && text[before - 1] != ' ') before--;
    if (before < 2 || before == len)
        return err_set(r->err, E_FORMAT, "item %zu has no last word after a space",
                       r->items->n + 1);
    struct eval_item *item = add_item(r->items, r->err);
    if (!item) return E_NOMEM;
    TRY(count_tokens(r, text, len, &n));
    TRY(count_tokens(r, text, before - 1, &n_before));
    TRY(take_text(r, item, text, len));
    item->n_scored = n - n_before;
    if (item->n_scored >= 1 && item->n_scored < item->n_ids) return 0;
    return err_set(r->err, E_FORMAT, "item %zu has no token before its last word", r->items->n);
}

// --- squad ---

static int add_answers(struct reading *r, struct eval_item *item, const cJSON *answers) {
    const cJSON *a;
    item->answers = calloc((size_t)cJSON_GetArraySize(answers) + 1, sizeof *item->answers);
    if (!item->answers) return err_set(r->err, E_NOMEM, "out of memory for the answers");
    cJSON_ArrayForEach(a, answers) {
        const char *text = cJSON_GetStringValue(
            cJSON_IsObject(a) ? cJSON_GetObjectItemCaseSensitive(a, "text") : a);
        if (text && !(item->answers[item->n_answers++] = strdup(text)))
            return err_set(r->err, E_NOMEM, "out of memory for the answers");
    }
    if (item->n_answers > 0) return 0;
    item->answers[item->n_answers++] = strdup(""); // a question without an answer (version 2.0)
    return item->answers[0] ? 0 : err_set(r->err, E_NOMEM, "out of memory for the answers");
}

static int add_question(struct reading *r, const char *context, const cJSON *q) {
    const char *question = NULL, *id = NULL;
    const cJSON *answers = cJSON_GetObjectItemCaseSensitive(q, "answers");
    const cJSON *answer = cJSON_GetObjectItemCaseSensitive(q, "answer");
    TRY(json_get_string(q, "question", &question, r->err));
    TRY(json_get_string(q, "id", &id, r->err));
    if (!context || !question || (!cJSON_IsArray(answers) && !cJSON_IsString(answer)))
        return err_set(r->err, E_FORMAT, "item %zu lacks its context, question or answers",
                       r->items->n + 1);
    struct eval_item *item = add_item(r->items, r->err);
    if (!item || (id && !(item->id = strdup(id)))) return E_NOMEM;
    struct buf prompt;
    buf_init(&prompt, DATA_BYTES);
    buf_addf(&prompt, "Context: %s\n\nQuestion: %s\n\nAnswer:", context, question);
    int rc = prompt.error ? E_NOMEM : take_text(r, item, buf_z(&prompt), prompt.len);
    buf_release(&prompt);
    TRY(rc);
    if (cJSON_IsArray(answers)) return add_answers(r, item, answers);
    cJSON *one = cJSON_CreateArray();
    cJSON_AddItemReferenceToArray(one, (cJSON *)(size_t)answer);
    rc = add_answers(r, item, one);
    cJSON_Delete(one);
    return rc;
}

static int add_articles(struct reading *r, const cJSON *file) {
    const cJSON *article, *paragraph, *q;
    cJSON_ArrayForEach(article, cJSON_GetObjectItemCaseSensitive(file, "data"))
        cJSON_ArrayForEach(paragraph, cJSON_GetObjectItemCaseSensitive(article, "paragraphs")) {
        const char *context = NULL;
        TRY(json_get_string(paragraph, "context", &context, r->err));
        cJSON_ArrayForEach(q, cJSON_GetObjectItemCaseSensitive(paragraph, "qas"))
            TRY(add_question(r, context, q));
    }
    return 0;
}

// --- files of lines ---

static int add_line(struct reading *r, enum eval_task task, const char *line, size_t len) {
    if (task == EVAL_LAMBADA && line[0] != '{') return add_last_word(r, line, len);
    const char *text = NULL;
    cJSON *json = json_parse(line, len, &json_limits_file, r->err);
    int rc = json ? 0 : r->err->code;
    if (rc == 0 && task == EVAL_LAMBADA) {
        rc = json_get_string(json, "text", &text, r->err);
        rc = text     ? add_last_word(r, text, strlen(text))
             : rc < 0 ? rc
                      : err_set(r->err, E_FORMAT, "item %zu has no 'text'", r->items->n + 1);
    } else if (rc == 0) {
        rc = json_get_string(json, "context", &text, r->err);
        if (rc >= 0) rc = add_question(r, text, json);
    }
    cJSON_Delete(json);
    return rc;
}

static int add_lines(struct reading *r, enum eval_task task, const struct buf *data) {
    for (size_t at = 0; at < data->len;) {
        const char *line = (const char *)data->data + at;
        const char *end = memchr(line, '\n', data->len - at);
        size_t len = end ? (size_t)(end - line) : data->len - at;
        at += len + 1;
        while (len > 0 && isspace((unsigned char)line[len - 1])) len--;
        if (len > 0) TRY(add_line(r, task, line, len));
    }
    return 0;
}

// --- perplexity ---

static int add_pieces(struct reading *r, const struct buf *data, int64_t piece_tokens) {
    struct token_list ids;
    token_list_init(&ids);
    int rc = engine_tokenize(r->engine, buf_z(data), data->len, true, &ids, r->err);
    for (size_t at = 0; rc == 0 && at + 1 < ids.len; at += (size_t)piece_tokens) {
        size_t n = ids.len - at < (size_t)piece_tokens ? ids.len - at : (size_t)piece_tokens;
        if (n < 2) break; // a last token alone predicts nothing
        struct eval_item *item = add_item(r->items, r->err);
        if (item) item->ids = malloc(n * sizeof *item->ids);
        if (!item || !item->ids) {
            rc = err_set(r->err, E_NOMEM, "out of memory for the text");
            break;
        }
        memcpy(item->ids, ids.ids + at, n * sizeof *item->ids);
        item->n_ids = (int64_t)n;
        item->n_scored = item->n_ids - 1;
    }
    token_list_release(&ids);
    return rc;
}

int eval_items_read(struct eval_items *items, enum eval_task task, const char *path,
                    const struct engine *e, int64_t max_tokens, int64_t piece_tokens,
                    struct err *err) {
    struct reading r = {items, e, max_tokens, err};
    struct buf data;
    *items = (struct eval_items){0};
    int rc = buf_read_file(&data, path, DATA_BYTES, err);
    if (rc == 0) {
        items->n_bytes = data.len;
        items->data_id = xxh64(data.data, data.len, 0);
        // An object with "data" is SQuAD's own form; otherwise each line is an item.
        cJSON *whole =
            task == EVAL_SQUAD ? json_parse(buf_z(&data), data.len, &json_limits_file, NULL) : NULL;
        if (whole && cJSON_GetObjectItemCaseSensitive(whole, "data"))
            rc = add_articles(&r, whole);
        else
            rc = task == EVAL_PERPLEXITY ? add_pieces(&r, &data, piece_tokens)
                                         : add_lines(&r, task, &data);
        cJSON_Delete(whole);
        if (rc == 0 && items->n == 0) rc = err_set(err, E_FORMAT, "%s has no item", path);
    }
    buf_release(&data);
    if (rc < 0) {
        if (!err->code) err_set(err, rc, "%s cannot be read (%s)", path, err_name(rc));
        eval_items_release(items);
    }
    return rc;
}

void eval_items_release(struct eval_items *items) {
    for (size_t i = 0; i < items->n; i++) {
        struct eval_item *item = &items->list[i];
        for (size_t k = 0; k < item->n_answers; k++) free(item->answers[k]);
        free(item->answers);
        free(item->id);
        free(item->ids);
    }
    free(items->list);
    *items = (struct eval_items){0};
}

// --- SQuAD's measures ---

static bool is_article(const char *word, size_t len) {
    return (len == 1 && *word == 'a') || (len == 2 && !memcmp(word, "an", 2)) ||
           (len == 3 && !memcmp(word, "the", 3));
}

void eval_normalize(const char *text, struct buf *out) {
    size_t from = out->len; // of the word that is being written
    for (const char *p = text;; p++) {
        unsigned char c = (unsigned char)*p;
        if (c && !isspace(c)) {
            if (!ispunct(c)) buf_addc(out, (char)tolower(c));
            continue;
        }
        const char *word = buf_z(out) + from;
        if (out->len > from && is_article(word, out->len - from)) out->len = from;
        if (out->len > from) {
            buf_addc(out, ' ');
            from = out->len;
        }
        if (!c) break;
    }
    if (out->len > 0) out->len--; // the space after the last word
    if (out->data) out->data[out->len] = '\0';
}

struct words {
    struct buf text;
    char **list;
    size_t n;
};

static void words_init(struct words *w, const char *text) {
    *w = (struct words){0};
    buf_init(&w->text, DATA_BYTES);
    eval_normalize(text, &w->text);
    buf_addc(&w->text, '\0');
    w->list = calloc(w->text.len + 1, sizeof *w->list);
    if (!w->list || w->text.error) return;
    for (char *p = strtok((char *)w->text.data, " "); p; p = strtok(NULL, " ")) w->list[w->n++] = p;
}

static void words_release(struct words *w) {
    free(w->list);
    buf_release(&w->text);
}

bool eval_exact(const char *answer, const char *truth) {
    struct buf a, b;
    buf_init(&a, DATA_BYTES);
    buf_init(&b, DATA_BYTES);
    eval_normalize(answer, &a);
    eval_normalize(truth, &b);
    bool same = a.len == b.len && memcmp(buf_z(&a), buf_z(&b), a.len) == 0;
    buf_release(&a);
    buf_release(&b);
    return same;
}

double eval_f1(const char *answer, const char *truth) {
    struct words a, b;
    size_t common = 0;
    words_init(&a, answer);
    words_init(&b, truth);
    bool empty = a.n == 0 || b.n == 0;
    double f1 = empty ? a.n == b.n : 0;
    for (size_t i = 0; i < a.n; i++)
        for (size_t k = 0; k < b.n; k++) {
            if (!b.list[k] || strcmp(a.list[i], b.list[k]) != 0) continue;
            b.list[k] = NULL; // each word counts as often as both have it
            common++;
            break;
        }
    if (common > 0) {
        double precision = (double)common / (double)a.n, recall = (double)common / (double)b.n;
        f1 = 2 * precision * recall / (precision + recall);
    }
    words_release(&a);
    words_release(&b);
    return f1;
}
