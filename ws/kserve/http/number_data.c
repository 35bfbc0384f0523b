// See number_data.h.
#include "ws/kserve/http/number_data.h"
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 32        // as of other JSON (json_limits_message)
#define NUMBER_MAX_CHARS 64 // of a number: enough for any double

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// --- finding -------------------------------------------------------------------------------------

static const char *skip_space(const char *p, const char *end) {
    while (p < end && is_space(*p)) p++;
    return p;
}

static const char *skip_digits(const char *p, const char *end) { // NULL: there is none
    const char *start = p;
    while (p < end && is_digit(*p)) p++;
    return p > start ? p : NULL;
}

// A number in JSON's grammar; NULL: it is none, or is too long to be one that we read.
static const char *skip_number(const char *p, const char *end) {
    const char *start = p;
    if (p < end && *p == '-') p++;
    bool zero = p < end && *p == '0';
    const char *first = p;
    if (!(p = skip_digits(p, end)) || (zero && p > first + 1)) return NULL;
    if (p < end && *p == '.' && !(p = skip_digits(p + 1, end))) return NULL;
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        if (!(p = skip_digits(p, end))) return NULL;
    }
    return p - start <= NUMBER_MAX_CHARS ? p : NULL;
}

// The end of the array of numbers at p; NULL: it is something else.
static const char *skip_array(const char *p, const char *end) {
    int depth = 0;
    bool value = true;   // one may stand here
    bool needed = false; // and must: after a comma
    while ((p = skip_space(p, end)) < end) {
        if (*p == '[' && value && depth < DEPTH_MAX) {
            depth++;
            needed = false;
            p++;
        } else if (*p == ']' && depth > 0 && !needed) {
            value = false;
            p++;
            if (--depth == 0) return p;
        } else if (*p == ',' && !value) {
            value = needed = true;
            p++;
        } else if (value && depth > 0) {
            if (!(p = skip_number(p, end))) return NULL;
            value = needed = false;
        } else {
            return NULL;
        }
    }
    return NULL;
}

static const char *skip_string(const char *p, const char *end) { // from its first quote
    for (p++; p < end && *p != '"'; p++)
        if (*p == '\\') p++;
    return p < end ? p + 1 : end;
}

char *number_data_hollow(const char *text, size_t len, size_t least) {
    static const char key[] = "\"data\"";
    const size_t key_len = sizeof key - 1;
    char *copy = malloc(len + 1);
    const char *end = text + len, *p = text;
    if (!copy) return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    while (p < end) {
        if (*p != '"') {
            p++;
            continue;
        }
        const char *name = p;
        p = skip_string(p, end);
        if ((size_t)(p - name) != key_len || memcmp(name, key, key_len) != 0) continue;
        const char *array = skip_space(p, end);
        if (array == end || *array != ':') continue;
        array = skip_space(array + 1, end);
        const char *after = array < end && *array == '[' ? skip_array(array, end) : NULL;
        if (!after) continue;
        size_t n = (size_t)(after - array);
        if (n >= least && n > 2) memset(copy + (array - text) + 1, ' ', n - 2);
        p = after;
    }
    return copy;
}

// --- reading -------------------------------------------------------------------------------------

// Integers are read exactly, also those that a double would round.
static int read_number(struct tensor *t, size_t i, const char *p, char **after, struct err *err) {
    bool negative = *p == '-';
    const char *digit = p + negative;
    uint64_t magnitude = 0;
    bool fits = true;
    for (; is_digit(*digit); digit++) {
        unsigned d = (unsigned)(*digit - '0');
        fits = fits && magnitude <= (UINT64_MAX - d) / 10;
        magnitude = fits ? magnitude * 10 + d : 0;
    }
    if (fits && *digit != '.' && *digit != 'e' && *digit != 'E') {
        *after = (char *)(size_t)digit;
        return tensor_set_integer(t, i, magnitude, negative, err);
    }
    return tensor_set_number(t, i, strtod(p, after), err);
}

int number_data_read(struct tensor *t, const char *array, struct err *err) {
    size_t i = 0;
    int depth = 0;
    char *after = NULL;
    TRY(tensor_allocate(t, t->n, err));
    do {
        if (*array == '[' || *array == ']') depth += *array == '[' ? 1 : -1;
        if (*array != '-' && !is_digit(*array)) {
            array++;
            continue;
        }
        if (i == t->n)
            return err_set(err, E_INVAL, "input '%s' has more than the %zu elements of its shape",
                           t->name, t->n);
        TRY(read_number(t, i++, array, &after, err));
        array = after;
    } while (depth > 0);
    if (i == t->n) return 0;
    return err_set(err, E_INVAL, "input '%s' has %zu elements, its shape needs %zu", t->name, i,
                   t->n);
}
