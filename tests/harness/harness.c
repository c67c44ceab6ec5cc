/* harness.c - the runner: fork per test, deadline by alarm in the parent, exit code as verdict (0 pass, 77
 * skip, else fail). */
#define _XOPEN_SOURCE 700
#include "harness/harness.h"

#include <ftw.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static harness_test *tests;
static char tmp_dir[256];

void harness_register(harness_test *test) {
    harness_test **at = &tests;
    while (*at && (strcmp((*at)->file, test->file) < 0)) at = &(*at)->next;
    while (*at && strcmp((*at)->file, test->file) == 0) at = &(*at)->next;
    test->next = *at;
    *at = test;
}

void harness_fail(const char *file, int line, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    printf("    %s:%d: ", file, line);
    vprintf(fmt, ap);
    printf("\n");
    fflush(stdout);
    va_end(ap);
    _exit(1);
}

void harness_skip(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    printf("    skip: ");
    vprintf(fmt, ap);
    printf("\n");
    fflush(stdout);
    va_end(ap);
    _exit(77);
}

const char *harness_source_dir(void) {
    return DUET_SOURCE_DIR;
}

const char *harness_need_env(const char *name) {
    const char *value = getenv(name);
    if (!value || !*value) SKIP("%s is not set", name);
    return value;
}

const char *harness_tmp_dir(void) {
    return tmp_dir;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk) {
    (void)st, (void)type, (void)walk;
    return remove(path);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int wait_for(pid_t pid, double deadline_s, int *status) {
    for (double start = now_s();;) {
        if (waitpid(pid, status, WNOHANG) == pid) return 1;
        if (now_s() - start > deadline_s) return 0;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
}

static int run_one(const harness_test *t, double slowdown) {
    const char *base = getenv("TMPDIR");
    snprintf(tmp_dir, sizeof tmp_dir, "%s/duet-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(tmp_dir)) return 1;
    fflush(stdout);
    double start = now_s();
    pid_t pid = fork();
    if (pid == 0) {
        t->run();
        fflush(stdout);
        exit(0);
    }
    int status = 0, verdict;
    if (!wait_for(pid, t->deadline_ms / 1000.0 * slowdown, &status)) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        printf("    deadline of %d ms passed\n", t->deadline_ms);
        verdict = 1;
    } else if (WIFSIGNALED(status)) {
        printf("    killed by signal %d\n", WTERMSIG(status));
        verdict = 1;
    } else {
        verdict = WEXITSTATUS(status);
    }
    nftw(tmp_dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    printf("%-4s %s (%.0f ms)\n",
           verdict == 0    ? "ok"
           : verdict == 77 ? "skip"
                           : "FAIL",
           t->name, 1e3 * (now_s() - start));
    return verdict;
}

static int wanted(const harness_test *t, int argc, char **argv) {
    if (argc < 2) return 1;
    for (int i = 1; i < argc; i++)
        if (strstr(t->name, argv[i])) return 1;
    return 0;
}

int main(int argc, char **argv) {
    const char *slow = getenv("DUET_TEST_SLOWDOWN");
    double slowdown = slow ? atof(slow) : 1.0;
    int passed = 0, failed = 0, skipped = 0, exit_code = 0;
    if (harness_other_main && harness_other_main(argc, argv, &exit_code)) return exit_code;
    for (const harness_test *t = tests; t; t = t->next) {
        if (argc == 2 && strcmp(argv[1], "--list") == 0) {
            printf("%s\n", t->name);
            continue;
        }
        if (!wanted(t, argc, argv)) continue;
        int verdict = run_one(t, slowdown > 0 ? slowdown : 1.0);
        if (verdict == 0)
            passed++;
        else if (verdict == 77)
            skipped++;
        else
            failed++;
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed ? 1 : 0;
}
