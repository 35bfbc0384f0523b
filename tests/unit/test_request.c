// A copied request shares no memory with the client's message, which is freed while the copy waits.
#include "sessions/state/request.h"
#include "tests/cmocka.h"
#include <string.h>

// All that a message's pointers can point to.
static char message[4096];
static size_t used;

static const char *text(const char *s) {
    char *at = message + used;
    used += strlen(s) + 1;
    assert_true(used <= sizeof message);
    return strcpy(at, s);
}

// No word of the copy points into the message, whichever member the word is.
static void assert_owns_all(const struct request *copy) {
    const char *bytes = (const char *)copy;
    for (size_t i = 0; i + sizeof(uintptr_t) <= sizeof *copy; i += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, bytes + i, sizeof word);
        if (word - (uintptr_t)message < sizeof message)
            fail_msg("kind %d: the word at byte %zu points into the message", copy->kind, i);
    }
}

static void fill(struct request *r) {
    r->owner = text("owner");
    r->session = text("session");
    r->title = text("title");
    r->note = text("note");
    r->folder = text("folder");
    r->input.text = text("input");
    r->input.text_len = 5;
    r->input.answer = text("answer");
    r->input.answer_len = 6;
    struct request_open *open = r->kind == REQUEST_OPEN    ? &r->open
                                : r->kind == REQUEST_START ? &r->start.open
                                                           : NULL;
    if (open) {
        open->model = text("model");
        open->system = text("system");
        open->prompt_task = text("task");
    }
    if (r->kind == REQUEST_UPDATE) r->update.old_note = text("old");
    if (r->kind == REQUEST_FORK) r->fork.new_session = text("new");
    if (r->kind == REQUEST_LIST) {
        r->list.query = text("query");
        r->list.forked_from = text("source");
        r->list.cursor = text("cursor");
    }
}

static void a_copy_outlives_its_message(void **state) {
    for (enum request_kind kind = REQUEST_OPEN; kind <= REQUEST_EXPORT; kind++) {
        struct request r;
        used = 0;
        request_init(&r, kind);
        fill(&r);
        struct request *copy = request_copy(&r);
        assert_non_null(copy);
        memset(message, 'x', sizeof message);
        assert_owns_all(copy);
        assert_string_equal(copy->folder, "folder");
        assert_string_equal(copy->title, "title");
        request_free(copy);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_copy_outlives_its_message)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
