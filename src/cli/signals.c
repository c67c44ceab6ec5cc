/* signals.c - the first SIGINT or SIGTERM asks the run to stop, the second ends the process at once.
 *
 * The handler touches two variables and calls duet_cancel, write and _exit: all allowed in a signal handler.
 * It is installed even where a shell started us with SIGINT ignored (a background job of a script): who
 * sends the signal to us by name means it. main ignores SIGPIPE and SIGXFSZ: neither a closed
 * reader nor a limit on the size of files must lose a finished clip. */
#include "cli/cli.h"

#include <signal.h>
#include <unistd.h>

static volatile int seen; /* int, not sig_atomic_t: stages poll it through a pointer; both are one word */
static duet_engine *volatile target;

static void on_signal(int number) {
    (void)number;
    if (seen) _exit(EXIT_INTERRUPTED);
    seen = 1;
    static const char text[] = "\nstopping after this step; a second interrupt ends at once\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    duet_cancel(target);
}

void signals_watch(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void signals_target(duet_engine *engine) {
    target = engine;
    if (engine && seen) duet_cancel(engine); /* it came while the model was being opened */
}

bool signals_seen(void) {
    return seen != 0;
}

const volatile int *signals_flag(void) {
    return &seen;
}
