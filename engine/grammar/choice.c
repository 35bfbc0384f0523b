// The answer is one of a list of texts. The network is a trie, so that texts with a common prefix share its states.
#include "engine/grammar/choice.h"
#include "base/json.h"
#include "engine/grammar/notations.h"
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Texts [from, to) agree in their first `depth` bytes, which lead to `at`.
static void emit_group(struct net *n, const char *const *texts, size_t from, size_t to,
                       size_t depth, int32_t at, int32_t end) {
    for (; from < to && !texts[from][depth]; from++) net_empty(n, at, end);
    while (from < to && !net_failed(n)) {
        size_t next = from + 1, same = depth + 1;
        while (next < to && texts[next][depth] == texts[from][depth]) next++;
        const char *first = texts[from], *last = texts[next - 1];
        while (first[same] && first[same] == last[same]) same++;
        bool leaf = next == from + 1 && !first[same];
        int32_t state = leaf ? end : net_state_new(n);
        net_text(n, at, first + depth, same - depth, state);
        if (!leaf) emit_group(n, texts, from, next, same, state, end);
        from = next;
    }
}

void choice_emit(struct net *n, const char **texts, size_t n_texts, int32_t from, int32_t to) {
    qsort(texts, n_texts, sizeof *texts, compare);
    emit_group(n, (const char *const *)texts, 0, n_texts, 0, from, to);
}

int choice_compile(struct net *net, const char *text, size_t len, struct err *err) {
    cJSON *list = json_parse(text, len, &json_limits_message, err);
    if (!list) return err ? err->code : E_INVAL;
    const cJSON *item;
    size_t n = 0, most = (size_t)(cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0);
    const char **texts = malloc((most + 1) * sizeof *texts);
    int rc = texts ? 0 : err_set(err, E_NOMEM, "no memory for a choice");
    if (rc == 0 && most == 0) rc = err_set(err, E_INVAL, "it must be a list of strings");
    cJSON_ArrayForEach(item, list) {
        if (rc < 0) break;
        if (cJSON_IsString(item) && item->valuestring[0])
            texts[n++] = item->valuestring;
        else
            rc = err_set(err, E_INVAL, "entry %zu is no text, or an empty one", n);
    }
    net->root = net_rule_new(net, "choice", strlen("choice"));
    if (rc == 0 && !net_failed(net))
        choice_emit(net, texts, n, net->rules[net->root].start, net->rules[net->root].end);
    free(texts);
    cJSON_Delete(list);
    return rc;
}
