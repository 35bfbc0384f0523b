// The list of findings and how it is shown. See doctor.h.
#include "ws/cli/doctor.h"
#include "base/array.h"
#include "base/json_form.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { SUBJECT_COLUMNS = 12 };
static const struct {
    const char *shown, *name; // for people, in JSON
} levels[] = {[FINDING_OK] = {"ok", "ok"},
              [FINDING_ADVICE] = {"advice", "advice"},
              [FINDING_FAULT] = {"FAULT", "fault"}};

void finding_add(struct findings *f, enum finding_level level, const char *subject, const char *fix,
                 const char *fmt, ...) {
    va_list args;
    if (ARRAY_RESERVE(f->rows, f->cap, f->n + 1) < 0) {
        f->no_memory = true;
        return;
    }
    struct finding *row = &f->rows[f->n++];
    *row = (struct finding){.level = level, .subject = subject};
    va_start(args, fmt);
    vsnprintf(row->text, sizeof row->text, fmt, args);
    va_end(args);
    if (fix) snprintf(row->fix, sizeof row->fix, "%s", fix);
}

size_t findings_count(const struct findings *f, enum finding_level level) {
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) n += f->rows[i].level == level;
    return n;
}

void findings_print(const struct findings *f) {
    for (size_t i = 0; i < f->n; i++) {
        const struct finding *row = &f->rows[i];
        printf("%-7s %-*s %s\n", levels[row->level].shown, SUBJECT_COLUMNS, row->subject,
               row->text);
        if (row->fix[0]) printf("%*s to fix it: %s\n", SUBJECT_COLUMNS + 8, "", row->fix);
    }
    size_t faults = findings_count(f, FINDING_FAULT), advice = findings_count(f, FINDING_ADVICE);
    if (faults == 0 && advice == 0)
        puts("\nEverything is as it should be.");
    else
        printf("\n%zu %s, %zu %s of advice.\n", faults, faults == 1 ? "fault" : "faults", advice,
               advice == 1 ? "piece" : "pieces");
}

void findings_put_json(const struct findings *f, struct json_writer *w) {
    json_put_int(w, "faults", (int64_t)findings_count(f, FINDING_FAULT));
    json_put_int(w, "advice", (int64_t)findings_count(f, FINDING_ADVICE));
    json_open(w, "findings", '[');
    for (size_t i = 0; i < f->n; i++) {
        const struct finding *row = &f->rows[i];
        json_form(w, "{level:%s,subject:%s,text:%s", levels[row->level].name, row->subject,
                  row->text);
        if (row->fix[0]) json_put_string(w, "fix", row->fix);
        json_close(w, '}');
    }
    json_close(w, ']');
}

void findings_release(struct findings *f) {
    free(f->rows);
    *f = (struct findings){0};
}
