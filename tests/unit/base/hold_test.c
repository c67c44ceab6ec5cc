/* hold_test.c - one holder at a time, with locks and without; what the dead leave behind holds nothing. */
#define _GNU_SOURCE
#include "harness/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool no_locks; /* a file system without them */

static int maybe_fcntl(int fd, int command, struct flock *lock) {
    if (!no_locks) return fcntl(fd, command, lock);
    errno = ENOLCK;
    return -1;
}

#define fcntl(fd, command, lock) maybe_fcntl(fd, command, lock)
#include "base/hold.c"
#undef fcntl

static const char *hold_file(void) {
    static char path[512];
    snprintf(path, sizeof path, "%s/.clip.mp4.duet-run", harness_tmp_dir());
    return path;
}

static bool there(const char *path) {
    return access(path, F_OK) == 0;
}

static void write_line(const char *path, long pid, unsigned long long started, const char *boot,
                       const char *space, const char *host) {
    FILE *f = fopen(path, "w");
    EXPECT(f != NULL);
    fprintf(f, "duet-run-1 pid %ld started %llu boot %s space %s host %s\n", pid, started, boot, space, host);
    fclose(f);
}

/* A child that takes the hold, tells so, and stays until it is killed. */
static pid_t child_that_holds(const char *path) {
    int told[2];
    char byte = 0, who[DUET_HOLD_WHO_BYTES];
    EXPECT_EQ(pipe(told), 0);
    pid_t pid = fork();
    if (pid == 0) {
        duet_hold h;
        byte = duet_hold_take(path, &h, who) == DUET_HOLD_OURS;
        if (write(told[1], &byte, 1) != 1) _exit(1);
        for (;;) pause();
    }
    EXPECT_EQ(read(told[0], &byte, 1), 1);
    EXPECT(byte);
    close(told[0]);
    close(told[1]);
    return pid;
}

static void kill_child(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

TEST(a_hold_excludes_a_second_one_until_it_is_released, 5000) {
    for (int mode = 0; mode < 2; mode++) {
        no_locks = mode;
        const char *path = hold_file();
        duet_hold a, b;
        char who[DUET_HOLD_WHO_BYTES] = "", self[64];
        snprintf(self, sizeof self, "process %ld", (long)getpid());
        EXPECT_EQ(duet_hold_look(path, who), DUET_HOLD_FREE);
        EXPECT_EQ(duet_hold_take(path, &a, who), DUET_HOLD_OURS);
        EXPECT(!a.stale);
        EXPECT_EQ(duet_hold_take(path, &b, who), DUET_HOLD_OTHERS);
        EXPECT_STR(who, self);
        EXPECT(b.path == NULL);
        EXPECT_EQ(duet_hold_look(path, who), DUET_HOLD_OTHERS);
        duet_hold_release(&a);
        EXPECT(!there(path));
        EXPECT_EQ(duet_hold_take(path, &b, who), DUET_HOLD_OURS);
        EXPECT(!b.stale);
        duet_hold_release(&b);
        duet_hold_release(&b);
        EXPECT_EQ(duet_mem_live_total_bytes(), 0);
    }
}

TEST(a_killed_holder_holds_nothing, 10000) {
    for (int mode = 0; mode < 2; mode++) {
        no_locks = mode;
        const char *path = hold_file();
        duet_hold h;
        char who[DUET_HOLD_WHO_BYTES] = "", name[64];
        pid_t pid = child_that_holds(path);
        snprintf(name, sizeof name, "process %ld", (long)pid);
        EXPECT_EQ(duet_hold_take(path, &h, who), DUET_HOLD_OTHERS);
        EXPECT_STR(who, name);
        kill_child(pid);
        EXPECT(there(path));
        EXPECT_EQ(duet_hold_look(path, who), DUET_HOLD_FREE);
        EXPECT_EQ(duet_hold_take(path, &h, who), DUET_HOLD_OURS);
        EXPECT(h.stale);
        duet_hold_release(&h);
        EXPECT(!there(path));
    }
}

TEST(without_locks_the_line_in_the_file_decides, 20000) {
    no_locks = true;
    const char *path = hold_file();
    holder me;
    describe_self(&me);
    const struct {
        long pid;
        unsigned long long started;
        const char *boot, *space, *host;
        duet_hold_state want;
    } cases[] = {
        {me.pid, me.started, me.boot, me.space, me.host, DUET_HOLD_OTHERS},
        {me.pid, me.started + 1, me.boot, me.space, me.host,
         DUET_HOLD_FREE}, /* the number was given out again */
        {0x7ffffff0, 5, me.boot, me.space, me.host, DUET_HOLD_FREE},
        {me.pid, me.started, "earlier", me.space, me.host,
         DUET_HOLD_FREE}, /* before this machine was started */
        {me.pid, me.started, "elsewhere", me.space, "another", DUET_HOLD_UNKNOWN},
        {me.pid, me.started, me.boot, "pid:[1]", me.host, DUET_HOLD_UNKNOWN}, /* another container */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        duet_hold h;
        char who[DUET_HOLD_WHO_BYTES] = "";
        write_line(path, cases[i].pid, cases[i].started, cases[i].boot, cases[i].space, cases[i].host);
        EXPECT_EQ(duet_hold_look(path, who), cases[i].want);
        duet_hold_state got = duet_hold_take(path, &h, who);
        EXPECT_EQ(got, cases[i].want == DUET_HOLD_FREE ? DUET_HOLD_OURS : cases[i].want);
        if (got == DUET_HOLD_UNKNOWN && !strcmp(cases[i].host, "another")) EXPECT_HAS(who, "on another");
        duet_hold_release(&h);
        EXPECT_EQ(there(path), got != DUET_HOLD_OURS);
        unlink(path);
    }
    FILE *f = fopen(path, "w"); /* killed between making and writing it */
    fclose(f);
    duet_hold h;
    char who[DUET_HOLD_WHO_BYTES];
    EXPECT_EQ(duet_hold_take(path, &h, who), DUET_HOLD_OURS);
    duet_hold_release(&h);
    no_locks = false;
}

TEST(a_hold_is_taken_by_exactly_one_of_many, 20000) {
    enum { CHILDREN = 8 };
    for (int mode = 0; mode < 4; mode++) {
        no_locks = mode & 1;
        const char *path = hold_file();
        if (mode & 2)
            write_line(path, 0x7ffffff0, 5, "gone", "-",
                       "-");   /* somebody's remains: all want to clear them */
        if ((mode & 3) == 3) { /* of this machine */
            holder me;
            describe_self(&me);
            write_line(path, 0x7ffffff0, 5, me.boot, me.space, me.host);
        }
        int won[2], go[2], total = 0;
        EXPECT_EQ(pipe(won), 0);
        EXPECT_EQ(pipe(go), 0);
        pid_t child[CHILDREN];
        for (int i = 0; i < CHILDREN; i++) {
            child[i] = fork();
            if (child[i] == 0) {
                duet_hold h;
                char who[DUET_HOLD_WHO_BYTES], byte;
                close(go[1]);
                if (read(go[0], &byte, 1) != 0) _exit(1); /* all at once, when the parent closes it */
                byte = duet_hold_take(path, &h, who) == DUET_HOLD_OURS;
                if (write(won[1], &byte, 1) != 1) _exit(1);
                for (;;) pause();
            }
        }
        close(go[0]);
        close(go[1]);
        for (int i = 0; i < CHILDREN; i++) {
            char byte;
            EXPECT_EQ(read(won[0], &byte, 1), 1);
            total += byte;
        }
        for (int i = 0; i < CHILDREN; i++) kill_child(child[i]);
        EXPECT_EQ(total, 1);
        close(won[0]);
        close(won[1]);
        unlink(path);
    }
    no_locks = false;
}

TEST(what_is_no_hold_is_left_alone, 5000) {
    const char *path = hold_file();
    duet_hold h;
    char who[DUET_HOLD_WHO_BYTES];
    EXPECT_EQ(mkdir(path, 0777), 0);
    EXPECT_EQ(duet_hold_take(path, &h, who), DUET_HOLD_CANNOT);
    EXPECT_EQ(rmdir(path), 0);
    EXPECT_EQ(mkfifo(path, 0666), 0);
    EXPECT_EQ(duet_hold_take(path, &h, who), DUET_HOLD_CANNOT);
    EXPECT_EQ(unlink(path), 0);
    EXPECT_EQ(symlink("elsewhere", path), 0); /* nothing is written through a link that somebody laid */
    EXPECT_EQ(duet_hold_take(path, &h, who), DUET_HOLD_CANNOT);
    EXPECT_EQ(unlink(path), 0);
    EXPECT_EQ(duet_hold_take(path, &h, who), DUET_HOLD_OURS);
    EXPECT_EQ(unlink(path), 0);
    duet_hold other; /* removed by hand and taken again: the first must not remove the second's */
    EXPECT_EQ(duet_hold_take(path, &other, who), DUET_HOLD_OURS);
    duet_hold_release(&h);
    EXPECT(there(path));
    duet_hold_release(&other);
    EXPECT(!there(path));
}
