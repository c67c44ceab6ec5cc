/* main.c - which command, and the one place from which the process ends. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct runner {
    int mask;
    int (*run)(const opt_set *set);
} runner;
static const runner RUNNERS[] = {
#define COMMAND(id, mask, name, word, summary) {mask, cmd_##id},
#include "cli/commands.def"
};

static int run_command(const command *cmd, int n, char *const *words) {
    static opt_set set; /* some KB, once */
    duet_error err = {0};
    int code = EXIT_DONE;
    cut_files_watch(opt_wants_json(n, words));
    duet_status st = opt_parse(cmd, n, words, &set, &err);
    if (st != DUET_OK) {
        code = report_failure(st, &err, PHASE_REQUEST, opt_wants_json(n, words), NULL);
    } else if (set.value[OPT_help].on) {
        help_command(cmd, stdout);
    } else {
        for (size_t i = 0; i < sizeof RUNNERS / sizeof RUNNERS[0]; i++) {
            if (RUNNERS[i].mask == cmd->mask) code = RUNNERS[i].run(&set);
        }
    }
    opt_close(&set);
    return code;
}

static int no_such_command(const char *word, bool json) {
    duet_error err = {0};
    duet_refuse(&err, word, "unknown_parameter", NULL, command_nearest(word), "is not a command of duet");
    return report_failure(DUET_E_REQUEST, &err, PHASE_REQUEST, json, NULL);
}

/* Commands of one word take no second one: it would be ignored in silence. */
static int too_many(const char *word, bool json) {
    duet_error err = {0};
    duet_refuse(&err, word, "unknown_parameter", NULL, NULL, "is one word too many");
    return report_failure(DUET_E_REQUEST, &err, PHASE_REQUEST, json, NULL);
}

static int run_help(int n, char *const *words) {
    if (n > 1) return too_many(words[1], opt_wants_json(n, words));
    if (n == 0) return help_program(stdout), EXIT_DONE;
    if (!strcmp(words[0], "--markdown")) return help_markdown(stdout), EXIT_DONE;
    const command *cmd = command_find(words[0]);
    if (cmd) return help_command(cmd, stdout), EXIT_DONE;
    static const char *const plain[] = {"completion", "version", "help"};
    for (int i = 0; i < 3; i++) {
        if (!strcmp(words[0], plain[i])) return help_program(stdout), EXIT_DONE;
    }
    return no_such_command(words[0], opt_wants_json(n, words));
}

static int run_completion(int n, char *const *words) {
    if (n > 1) return too_many(words[1], opt_wants_json(n, words));
    if (n == 1 && completion_script(words[0], stdout)) return EXIT_DONE;
    duet_error err = {0};
    duet_refuse(&err, "shell", n ? "invalid_value" : "missing_required_parameter", n ? words[0] : NULL,
                "bash", "must be bash or zsh");
    return report_failure(DUET_E_REQUEST, &err, PHASE_REQUEST, opt_wants_json(n, words), NULL);
}

static int run(int argc, char **argv) {
    if (argc < 2) return help_program(stdout), EXIT_DONE;
    const char *word = argv[1];
    int n = argc - 2;
    char *const *rest = argv + 2;
    if (!strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h")) return run_help(n, rest);
    if (!strcmp(word, "version") || !strcmp(word, "--version"))
        return n > 0 ? too_many(rest[0], opt_wants_json(n, rest))
                     : (printf("duet %s\n", duet_version()), EXIT_DONE);
    if (!strcmp(word, "completion")) return run_completion(n, rest);
    const command *cmd = command_find(word);
    return cmd ? run_command(cmd, n, rest) : no_such_command(word, opt_wants_json(n, rest));
}

/* A result that could not be written is a failure, except to a reader that has seen enough (duet help |
 * head). */
static int flush_results(int code) {
    if (!fflush(stdout) && !ferror(stdout)) return code;
    if (errno == EPIPE) return code;
    fprintf(stderr, "error: standard output: %s\n", strerror(errno));
    return code == EXIT_DONE ? EXIT_RUN : code;
}

/* A standard stream that the caller closed (2>&-) would be the first free descriptor: the clip would be opened
 * as number 2 and every message written into it. /dev/null takes the place, for reading only, so that a result
 * that nobody receives still counts as not written. */
static bool hold_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd) return false;
    }
    return true;
}

int main(int argc, char **argv) {
    if (!hold_standard_streams()) return EXIT_RUN;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is a failed write, as a full disk */
    return flush_results(run(argc, argv));
}
