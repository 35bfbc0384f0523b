// The report of `parley sessions doctor`. See doctor_report.h.
#include "ws/cli/doctor_report.h"
#include "base/json.h"
#include "ws/cli/terminal.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void print_fault(const struct doctor_fault *f) {
    if (f->session) {
        fputs("session ", stdout);
        terminal_write(stdout, f->session, strlen(f->session));
        fputs(": ", stdout);
    }
    terminal_write(stdout, f->what, strlen(f->what));
    puts(f->repaired ? " (repaired)" : "");
}

void doctor_report_print(const struct doctor_report *r) {
    size_t n_repaired = r->n_faults - r->n_left;
    for (size_t i = 0; i < r->n_faults; i++) print_fault(&r->faults[i]);
    printf("%" PRId64 " session%s, ", r->n_sessions, r->n_sessions == 1 ? "" : "s");
    if (r->n_faults == 0)
        fputs("no faults", stdout);
    else
        printf("%zu fault%s, %zu of them repaired", r->n_faults, r->n_faults == 1 ? "" : "s",
               n_repaired);
    if (r->n_exported > 0)
        printf(", %" PRId64 " session%s exported", r->n_exported, r->n_exported == 1 ? "" : "s");
    putchar('\n');
}

int doctor_report_write(const struct doctor_report *r, struct buf *out) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_put_int(&w, "sessions", r->n_sessions);
    json_open(&w, "faults", '[');
    for (size_t i = 0; i < r->n_faults; i++) {
        json_open(&w, NULL, '{');
        json_put_string(&w, "session", r->faults[i].session);
        json_put_string(&w, "fault", r->faults[i].what);
        json_put_bool(&w, "repaired", r->faults[i].repaired);
        json_close(&w, '}');
    }
    json_close(&w, ']');
    json_put_int(&w, "left", (int64_t)r->n_left);
    json_put_int(&w, "exported", r->n_exported);
    json_close(&w, '}');
    return out->error;
}
