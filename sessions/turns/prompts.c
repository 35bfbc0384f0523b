// The table of a session's virtual tokens (engine/model/prompt.h). See prompts.h.
//
// A session has one table, chosen when it is opened and never changed: an id in its log has one
// meaning, and no turn can read a cache that another table made. The record names the task and the hash
// of the table. A table from a client has no task; it is stored with the session and counts among its
// owner's stored_bytes.
#include "sessions/turns/prompts.h"
#include "base/err.h"
#include "sessions/turns/input.h"
#include <stdio.h>

#define SAID_BYTES 200 // of the names of tasks

static int refuse_task(const struct engine_info *info, const char *name, struct err *err) {
    char names[SAID_BYTES] = "";
    for (size_t i = 0, n = 0; i < info->n_prompt_tasks && n + PROMPT_NAME_MAX + 8 < SAID_BYTES; i++)
        n += (size_t)snprintf(names + n, SAID_BYTES - n, "%s'%s'", i ? ", " : "",
                              info->prompt_tasks[i].name);
    return err_set(err, E_INVAL, "there is no prompt task '%.*s'; this server has %s",
                   PROMPT_NAME_MAX, name, names[0] ? names : "none");
}

int prompts_open(struct session *s, const struct served_model *m, const struct request *r,
                 struct err *err) {
    const struct engine_info *info = m->info;
    const struct prompt_task *task = NULL;
    bool failed = false;
    if (r->open.prompt_task && r->open.prompt)
        return err_set(err, E_INVAL, "a task and a table of its own exclude each other");
    if (r->open.prompt_task &&
        !(task = prompt_task_find(info->prompt_tasks, info->n_prompt_tasks, r->open.prompt_task)))
        return refuse_task(info, r->open.prompt_task, err);
    const struct prompt *p = task ? task->prompt : r->open.prompt;
    if (!p) return 0;
    if (p->width != engine_prompt_width(m->engine, p->kind))
        return err_set(err, E_INVAL, "a virtual token has %lld values; this model's have %lld (%s)",
                       (long long)p->width, (long long)engine_prompt_width(m->engine, p->kind),
                       prompt_kind_name(p->kind));
    record_prompt_describe(&s->rec, p, &failed);
    s->rec.prompt_task = record_strdup(task ? task->name : NULL, &failed);
    if (!task) s->prompt = prompt_hold(p);
    return failed ? err_set(err, E_NOMEM, "the server is out of memory") : 0;
}

int prompts_find(const struct session *s, const struct prompt **out, struct err *err) {
    const struct served_model *m = service_model(s);
    if (!m) return input_no_model(s, err);
    return record_prompt_find(&s->rec, m->info, s->prompt, out, err);
}
