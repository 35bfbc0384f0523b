// A main for a fuzz target without libFuzzer: runs it over each file of the folders named. For builds with any
// compiler's sanitizers, in which `make check-asan` walks the kept corpora.
// usage: walk_NAME FOLDER...
#include "tests/fuzz/fuzz.h"
#include <dirent.h>

static int walk_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    uint8_t *data = NULL;
    size_t len = 0, got;
    do {
        uint8_t *more = realloc(data, len + 65536);
        if (!more) abort();
        data = more;
        len += got = fread(data + len, 1, 65536, f);
    } while (got > 0);
    fclose(f);
    // Exactly as long as the input, so that reading past its end is seen.
    uint8_t *exact = malloc(len ? len : 1);
    if (!exact) abort();
    memcpy(exact, data, len);
    free(data);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    return 0;
}

int main(int argc, char **argv) {
    int n = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (!folder) {
            perror(argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(folder));) {
            char path[4096];
            if (entry->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            if (walk_file(path)) {
                perror(path);
                return 1;
            }
            n++;
        }
        closedir(folder);
    }
    printf("%d inputs\n", n);
    return 0;
}
