// Reads the build id from the running program's ELF notes, as mapped by the loader.
#include "base/build_id.h"
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static size_t padded(size_t n) {
    return (n + 3) & ~(size_t)3;
}

// One segment of notes: each note is a header, a name and a description, the last two padded to 4
// bytes.
static int read_notes(const char *p, size_t n, char *out) {
    while (n >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) h;
        memcpy(&h, p, sizeof h);
        size_t name = padded(h.n_namesz), all = sizeof h + name + padded(h.n_descsz);
        if (all > n) return 0;
        const char *words = p + sizeof h;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && !memcmp(words, "GNU", 4) &&
            h.n_descsz >= BUILD_ID_DIGITS / 2) {
            for (int i = 0; i < BUILD_ID_DIGITS / 2; i++)
                snprintf(out + 2 * i, 3, "%02x", (unsigned char)words[name + (size_t)i]);
            return 1;
        }
        p += all;
        n -= all;
    }
    return 0;
}

// The first object is the program itself; the others are libraries.
static int first_object(struct dl_phdr_info *info, size_t size, void *out) {
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *s = &info->dlpi_phdr[i];
        if (s->p_type != PT_NOTE) continue;
        if (read_notes((const char *)(info->dlpi_addr + s->p_vaddr), s->p_memsz, out)) break;
    }
    return 1;
}

void build_id(char out[BUILD_ID_DIGITS + 1]) {
    out[0] = '\0';
    dl_iterate_phdr(first_object, out);
}
