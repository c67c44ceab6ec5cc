/* replay_main.c - main() of a fuzz target built without libFuzzer: runs every file of the named folders
 * (and files) once.
 *
 * So each corpus, past crashes included, is a regression test with any compiler. The input is copied to a
 * heap block of its exact size: one byte too far is a report under a sanitizer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static int run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return perror(path), 1;
    fseek(file, 0, SEEK_END);
    long n_bytes = ftell(file);
    rewind(file);
    uint8_t *data = malloc(n_bytes > 0 ? (size_t)n_bytes : 1);
    int bad = !data || n_bytes < 0 || fread(data, 1, (size_t)n_bytes, file) != (size_t)n_bytes;
    fclose(file);
    if (bad)
        fprintf(stderr, "%s: cannot read\n", path);
    else
        LLVMFuzzerTestOneInput(data, (size_t)n_bytes);
    free(data);
    return bad;
}

/* A folder's plain files, or the file itself. Adds to *n_run; returns the number that could not be read. */
static int run_path(const char *path, int *n_run) {
    DIR *dir = opendir(path);
    if (!dir) return ++*n_run, run_file(path);
    int bad = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char name[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        bad += run_file(name);
        ++*n_run;
    }
    closedir(dir);
    return bad;
}

int main(int argc, char **argv) {
    int n_run = 0, bad = 0;
    for (int i = 1; i < argc; i++) bad += run_path(argv[i], &n_run);
    printf("%d passed, %d failed, 0 skipped\n", n_run - bad, bad);
    return bad || n_run == 0;
}
