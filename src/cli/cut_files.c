/* cut_files.c - a weight file that shrinks (or whose disk fails) while it is in use ends the process by name.
 *
 * Weights are mapped: what is no longer there cannot be read, and the system sends SIGBUS to the thread that tried. The
 * handler asks /proc/self/maps which file lies at the address, says so and ends the process like any fault of the model
 * (exit code 3). Latents that were written before stay on disk and are named, so that duet decode can finish the clip; the next
 * run of the name clears what was half-written.
 * It calls open, read, write, isatty and _exit alone, which are allowed in a signal handler. A SIGBUS of another origin
 * ends the process as if nobody had listened. The library installs no handler: signals belong to the program. */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

enum { LINE_BYTES = PATH_MAX + 256 };

static bool as_json;
static atomic_flag handling = ATOMIC_FLAG_INIT; /* the buffers are of the first thread that faults */
static char line[LINE_BYTES], chunk[4096];
/* Texts are made when they become true, because a handler may not; that of an output stays when it is complete. */
static struct {
    char *text, *json;
    volatile bool stand;
} latents[DUET_MAX_OUTPUTS];

void cut_files_latents(int32_t output, const char *path) {
    latents[output].stand = path != NULL;
    if (!path || latents[output].text) return;
    json_t *name = path_json(path);
    latents[output].text = duet_strdup(path);
    latents[output].json = json_dumps(name, JSON_ENCODE_ANY);
    json_decref(name);
}

static const char *hex(const char *at, uintptr_t *value) {
    *value = 0;
    for (;; at++) {
        int digit = *at >= '0' && *at <= '9' ? *at - '0' : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10 : -1;
        if (digit < 0) return at;
        *value = *value << 4 | (unsigned)digit;
    }
}

/* "7f12-7f34 r--s 00000000 08:01 1234      /models/a.safetensors": the name if the address lies in it. */
static const char *name_in(const char *text, uintptr_t address) {
    uintptr_t begin, end;
    const char *at = hex(text, &begin);
    if (*at != '-') return NULL;
    hex(at + 1, &end);
    return address >= begin && address < end ? strchr(text, '/') : NULL;
}

static const char *file_at(uintptr_t address) {
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    for (ssize_t n; fd >= 0 && (n = read(fd, chunk, sizeof chunk)) > 0;) {
        for (ssize_t i = 0; i < n; i++) {
            if (chunk[i] != '\n') {
                if (used + 1 < sizeof line) line[used++] = chunk[i];
                continue;
            }
            line[used] = '\0';
            used = 0;
            const char *name = name_in(line, address);
            if (name) return name;
        }
    }
    return NULL;
}

static void say(int fd, const char *text) {
    for (size_t n = strlen(text); n > 0;) {
        ssize_t done = write(fd, text, n);
        if (done <= 0) return;
        text += done;
        n -= (size_t)done;
    }
}

/* What may not stand in a line, or as it is in a JSON text, becomes '?'. */
static void clean(char *text, bool json) {
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f || (json && (*p > 0x7f || *p == '"' || *p == '\\'))) *p = '?';
}

static const char RULE[] =
    ": was cut, or its disk failed, while it was in use: weights must not change during a run";

static void on_bus(int number, siginfo_t *info, void *context) {
    (void)context;
    while (atomic_flag_test_and_set(&handling)) pause(); /* another thread is ending the process */
    const char *name = info->si_code == BUS_ADRERR ? file_at((uintptr_t)info->si_addr) : NULL;
    if (!name) {
        signal(number, SIG_DFL);               /* the access is tried again, and ends the process */
        if (info->si_code <= 0) raise(number); /* there was none: somebody sent the signal */
        atomic_flag_clear(&handling);
        return;
    }
    clean(line, false); /* the name lies in it */
    say(STDERR_FILENO, isatty(STDERR_FILENO) ? "\nerror: " : "error: ");
    say(STDERR_FILENO, name);
    say(STDERR_FILENO, RULE);
    say(STDERR_FILENO, "\n");
    const char *json_latents = NULL;
    for (int k = 0; k < DUET_MAX_OUTPUTS; k++) {
        if (!latents[k].stand || !latents[k].text) continue;
        say(STDERR_FILENO, LATENTS_KEPT);
        say(STDERR_FILENO, latents[k].text);
        say(STDERR_FILENO, "\n");
        if (!json_latents) json_latents = latents[k].json;
    }
    if (as_json) {
        clean(line, true);
        say(STDOUT_FILENO, "{\"error\": {\"message\": \"");
        say(STDOUT_FILENO, name);
        say(STDOUT_FILENO, RULE);
        say(STDOUT_FILENO, "\", \"type\": \"server_error\", \"param\": null, \"code\": \"model_invalid\"}");
        if (json_latents) say(STDOUT_FILENO, ", \"latents\": ");
        if (json_latents) say(STDOUT_FILENO, json_latents);
        say(STDOUT_FILENO, "}\n");
    }
    _exit(EXIT_MODEL);
}

void cut_files_watch(bool json) {
    as_json = json;
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
