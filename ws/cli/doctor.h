// The findings of `parley doctor`: a line each, and for a fault the command that fixes it.
#pragma once
#include "base/buf.h"
#include "base/json.h"
#include "ws/serve_config.h"

enum finding_level {
    FINDING_OK,     // as it should be
    FINDING_ADVICE, // the server runs, but slower or less safely than it could
    FINDING_FAULT,  // the server would not start, or not serve
};

struct finding {
    enum finding_level level;
    const char *subject; // a literal: "model", "port"
    char text[400];      // a sentence without its full stop
    char fix[300];       // a command or a setting; "" for FINDING_OK
};

struct findings {
    struct finding *rows; // (n)
    size_t n, cap;
    bool no_memory;  // some are missing
    long server_pid; // the server that has the database open, once that was checked; 0: none
};

// fix NULL: none. Both are cut to the row's size.
void finding_add(struct findings *f, enum finding_level level, const char *subject, const char *fix,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));
size_t findings_count(const struct findings *f, enum finding_level level);
void findings_print(const struct findings *f);
void findings_put_json(const struct findings *f, struct json_writer *w);
void findings_release(struct findings *f);

// The first line of a small file without its end; "" if it cannot be read.
void doctor_read_line(const char *path, char *out, int bytes);

// Checks. Each adds at least one finding; none changes anything, and a server may run meanwhile.
void doctor_check_database(struct findings *f, const struct serve_config *c);
void doctor_check_snapshots(struct findings *f, const struct serve_config *c);
void doctor_check_port(struct findings *f, const struct serve_config *c);
void doctor_check_tls(struct findings *f, const struct serve_config *c);
void doctor_check_tokens(struct findings *f, const struct serve_config *c);
void doctor_check_descriptors(struct findings *f, const struct serve_config *c);
void doctor_check_priority(struct findings *f, const struct serve_config *c);
void doctor_check_processors(struct findings *f, const struct serve_config *c);
void doctor_check_numa(struct findings *f, const struct serve_config *c);
void doctor_check_huge_pages(struct findings *f, const struct serve_config *c);
