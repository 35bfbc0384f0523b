// An exported session. An accepted one is consistent: it can be held in memory, and after exporting,
// reading and exporting again the bytes are the same.
#include "sessions/archive/archive.h"
#include "sessions/state/session.h"
#include "tests/fuzz/fuzz.h"

#define NOW_MS 1800000000000

// The engine's, which is not linked.
const char *engine_cache_source_name(enum engine_cache_source s) {
    static const char *const names[] = {
        [CACHE_NONE] = "none", [CACHE_KEPT] = "kept",         [CACHE_RECOMPUTED] = "recomputed",
        [CACHE_HOST] = "host", [CACHE_SNAPSHOT] = "snapshot",
    };
    return (unsigned)s < sizeof names / sizeof *names ? names[s] : "unknown";
}

bool engine_has_snapshot(const struct engine *e, const char *lasting_id) {
    return false;
}
void engine_grammar_release(struct grammar *g) {
    FUZZ_CHECK(!g); // no turn of a file has one
}

static struct buf export(const struct stored_session *s) {
    struct buf out;
    buf_init(&out, 1 << 28);
    FUZZ_CHECK(archive_export(s, &out) == 0);
    return out;
}

static void check_session(struct stored_session *s) {
    struct stored_session *again;
    struct err err = {0};
    struct buf first = export(s);
    FUZZ_CHECK(archive_read(&again, first.data, first.len, NOW_MS + 1, &err) == 0);
    struct buf second = export(again);
    FUZZ_CHECK(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    stored_session_free(again);
    buf_release(&first), buf_release(&second);
    struct session *held = session_new(NULL, s->rec.owner, s->rec.id, LIFE_LOADING);
    FUZZ_CHECK(held && session_restore(held, s) == 0);
    session_free(held);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct stored_session *s;
    struct err err = {0};
    int rc = archive_read(&s, (const char *)data, size, NOW_MS, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) return 0;
    check_session(s);
    stored_session_free(s);
    return 0;
}
