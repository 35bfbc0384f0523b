// See unicode_class.h. utf8proc knows each character's category; runs of equal ones are found once.
#include "engine/grammar/unicode_class.h"
#include <pthread.h>
#include <string.h>
#include <utf8proc.h>

enum { MOST_RUNS = 8192 };

struct run {
    uint32_t from; // to the next run
    uint8_t category;
};

static struct run runs[MOST_RUNS];
static int n_runs;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_runs(void) {
    for (uint32_t code = 0; code <= CHAR_MAX_CODE && n_runs < MOST_RUNS; code++) {
        const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)code);
        if (n_runs == 0 || runs[n_runs - 1].category != p->category)
            runs[n_runs++] = (struct run){.from = code, .category = (uint8_t)p->category};
    }
}

#define BIT(name) (1u << UTF8PROC_CATEGORY_##name)
#define LETTERS (BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO))
#define MARKS (BIT(MN) | BIT(MC) | BIT(ME))
#define NUMBERS (BIT(ND) | BIT(NL) | BIT(NO))
#define PUNCTUATION (BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO))
#define SYMBOLS (BIT(SM) | BIT(SC) | BIT(SK) | BIT(SO))
#define SEPARATORS (BIT(ZS) | BIT(ZL) | BIT(ZP))
#define OTHERS (BIT(CC) | BIT(CF) | BIT(CO))
#define ASSIGNED (LETTERS | MARKS | NUMBERS | PUNCTUATION | SYMBOLS | SEPARATORS | OTHERS)

static const struct category_class {
    const char *name, *long_name;
    uint32_t categories;
} classes[] = {
    {"L", "Letter", LETTERS},
    {"Lu", "Uppercase_Letter", BIT(LU)},
    {"Ll", "Lowercase_Letter", BIT(LL)},
    {"Lt", "Titlecase_Letter", BIT(LT)},
    {"LC", "Cased_Letter", BIT(LU) | BIT(LL) | BIT(LT)},
    {"Lm", "Modifier_Letter", BIT(LM)},
    {"Lo", "Other_Letter", BIT(LO)},
    {"M", "Mark", MARKS},
    {"M", "Combining_Mark", MARKS},
    {"Mn", "Nonspacing_Mark", BIT(MN)},
    {"Mc", "Spacing_Mark", BIT(MC)},
    {"Me", "Enclosing_Mark", BIT(ME)},
    {"N", "Number", NUMBERS},
    {"Nd", "Decimal_Number", BIT(ND)},
    {"digit", "digit", BIT(ND)},
    {"Nl", "Letter_Number", BIT(NL)},
    {"No", "Other_Number", BIT(NO)},
    {"P", "Punctuation", PUNCTUATION},
    {"punct", "punct", PUNCTUATION},
    {"Pc", "Connector_Punctuation", BIT(PC)},
    {"Pd", "Dash_Punctuation", BIT(PD)},
    {"Ps", "Open_Punctuation", BIT(PS)},
    {"Pe", "Close_Punctuation", BIT(PE)},
    {"Pi", "Initial_Punctuation", BIT(PI)},
    {"Pf", "Final_Punctuation", BIT(PF)},
    {"Po", "Other_Punctuation", BIT(PO)},
    {"S", "Symbol", SYMBOLS},
    {"Sm", "Math_Symbol", BIT(SM)},
    {"Sc", "Currency_Symbol", BIT(SC)},
    {"Sk", "Modifier_Symbol", BIT(SK)},
    {"So", "Other_Symbol", BIT(SO)},
    {"Z", "Separator", SEPARATORS},
    {"Zs", "Space_Separator", BIT(ZS)},
    {"Zl", "Line_Separator", BIT(ZL)},
    {"Zp", "Paragraph_Separator", BIT(ZP)},
    {"Cc", "Control", BIT(CC)},
    {"Cf", "Format", BIT(CF)},
    {"Co", "Private_Use", BIT(CO)},
    {"Any", "Any", ASSIGNED},
    {"Assigned", "Assigned", ASSIGNED},
};

static const struct listed_class {
    const char *name, *long_name;
    struct char_range ranges[16]; // in order; ends with zeros
    // Versions of Unicode differ: these characters are in all, and no complement is known.
    bool partial;
} listed[] = {
    {"ASCII", "ASCII", {{1, 0x7f}}, false},
    {"RI", "Regional_Indicator", {{0x1f1e6, 0x1f1ff}}, false},
    {"EMod", "Emoji_Modifier", {{0x1f3fb, 0x1f3ff}}, false},
    {"EComp",
     "Emoji_Component",
     {{'#', '#'},
      {'*', '*'},
      {'0', '9'},
      {0x200d, 0x200d},
      {0x20e3, 0x20e3},
      {0xfe0f, 0xfe0f},
      {0x1f1e6, 0x1f1ff},
      {0x1f3fb, 0x1f3ff},
      {0x1f9b0, 0x1f9b3},
      {0xe0020, 0xe007f}},
     false},
    {"ExtPict",
     "Extended_Pictographic",
     {{0x1f300, 0x1f320},
      {0x1f337, 0x1f37c},
      {0x1f37e, 0x1f393},
      {0x1f3a0, 0x1f3ca},
      {0x1f3e0, 0x1f3f0},
      {0x1f400, 0x1f43e},
      {0x1f442, 0x1f4fc},
      {0x1f4ff, 0x1f53d},
      {0x1f550, 0x1f567},
      {0x1f5fb, 0x1f64f},
      {0x1f680, 0x1f6c5},
      {0x1f90c, 0x1f93a}},
     true},
};

static bool equals(const char *name, size_t len, const char *known) {
    return strlen(known) == len && memcmp(name, known, len) == 0;
}

static const struct category_class *find_class(const char *name, size_t len) {
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (equals(name, len, classes[i].name) || equals(name, len, classes[i].long_name))
            return &classes[i];
    return NULL;
}

static const struct listed_class *find_listed(const char *name, size_t len) {
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++)
        if (equals(name, len, listed[i].name) || equals(name, len, listed[i].long_name))
            return &listed[i];
    return NULL;
}

// \\p{gc=Lu} and \\p{General_Category=Lu} are \\p{Lu}.
static void skip_prefix(const char **name, size_t *len) {
    static const char *const prefixes[] = {"gc=", "General_Category="};
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(prefixes[i]);
        if (*len <= n || memcmp(*name, prefixes[i], n) != 0) continue;
        *name += n;
        *len -= n;
        return;
    }
}

static int add_run(struct char_set *s, int i) {
    uint32_t to = i + 1 < n_runs ? runs[i + 1].from - 1 : CHAR_MAX_CODE;
    return char_set_add(s, runs[i].from, to);
}

static int add_categories(struct char_set *s, uint32_t categories, bool negated) {
    for (int i = 0; i < n_runs; i++) {
        uint32_t own = 1u << runs[i].category;
        bool in = own & categories;
        if ((own & ASSIGNED) && in != negated) TRY(add_run(s, i));
    }
    return 0;
}

static int add_listed(struct char_set *s, const struct listed_class *known, bool negated) {
    struct char_set own = {0};
    int32_t n = 0;
    while (known->ranges[n].lo) n++;
    int rc = char_set_add_ranges(&own, known->ranges, n, negated);
    if (rc == 0 && negated) rc = unicode_class_assigned(&own);
    if (rc == 0) rc = char_set_add_all(s, &own);
    char_set_release(&own);
    return rc;
}

int unicode_class_add(struct char_set *s, const char *name, size_t len, bool negated) {
    pthread_once(&once, find_runs);
    skip_prefix(&name, &len);
    const struct category_class *c = find_class(name, len);
    if (c) return add_categories(s, c->categories, negated);
    const struct listed_class *known = find_listed(name, len);
    if (!known || (known->partial && negated)) return E_UNSUPPORTED;
    return add_listed(s, known, negated);
}

int unicode_class_assigned(struct char_set *s) {
    pthread_once(&once, find_runs);
    TRY(char_set_complement(s));
    for (int i = 0; i < n_runs; i++)
        if (!(1u << runs[i].category & ASSIGNED)) TRY(add_run(s, i));
    char_set_order(s);
    return char_set_complement(s);
}
