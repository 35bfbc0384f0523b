// Shared by the tests of chat templates: the demo model's tokenizer, and templates of a test's own.
#pragma once
#include "engine/text/chat_template.h"
#include "tests/cmocka.h"
#include "tests/unit/text_model.h"

#define DEMO "configs/demo-model"

static struct tokenizer *demo;

static inline int open_demo(void **state) {
    struct err err;
    return tokenizer_open(&demo, DEMO, &err);
}

static inline int close_demo(void **state) {
    tokenizer_close(demo);
    return 0;
}

// Writes the template into a file and opens that.
static inline int open_own(struct chat_template **c, const char *text, const struct tokenizer *t,
                           struct err *err) {
    char path[] = "/tmp/parley-template-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int rc = chat_template_open(c, DEMO, path, t, err);
    unlink(path);
    return rc;
}

// A folder with this tokenizer_config.json (NULL: none), whose template renders the message "a" into text.
static inline int open_with_config(struct chat_template **c, const char *config, struct buf *text) {
    char dir[] = "/tmp/parley-chat-XXXXXX";
    struct err err = {0};
    struct chat_message m = {"user", "a"};
    assert_non_null(mkdtemp(dir));
    if (config) text_model_write(dir, "tokenizer_config.json", config, strlen(config));
    int rc = chat_template_open(c, dir, NULL, demo, &err);
    text_model_remove(dir);
    if (rc == 0)
        assert_int_equal(chat_template_render(*c, &m, 1, false, false, NULL, text, &err), 0);
    return rc;
}
