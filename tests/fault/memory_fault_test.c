/* memory_fault_test.c - whole requests in which one allocation is refused: an error, nothing leaked, nothing half-written.
 *
 * The n-th allocation from the start of the run fails once; n walks through the run in growing steps (a run makes thousands), with the first
 * ones dense because opening is where most kinds of object are made. */
#include "harness/harness.h"

#include <dirent.h>

#include "base/alloc.h"
#include "support/pipeline.h"

static int clips_in(const char *dir) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *end = strrchr(e->d_name, '.');
        n += end && strcmp(end, ".mp4") == 0;
        if (strstr(e->d_name, ".part-") || strstr(e->d_name, ".tmp")) FAIL("left behind: %s", e->d_name);
    }
    if (d) closedir(d);
    return n;
}

static bool run_once(const pipeline_spec *spec, int64_t nth) {
    pipeline_clip clip;
    duet_error err = {0};
    int64_t before = duet_mem_live_total_bytes();
    duet_mem_fault_arm(nth);
    duet_status st = pipeline_try(spec, &clip, &err);
    bool fired = duet_mem_fault_fired();
    duet_mem_fault_arm(-1);
    bool committed = clip.committed;
    pipeline_free(&clip);
    if (duet_mem_live_total_bytes() != before)
        FAIL("allocation %lld: %lld bytes leaked", (long long)nth,
             (long long)(duet_mem_live_total_bytes() - before));
    EXPECT_EQ(clips_in(harness_tmp_dir()),
              0); /* the sink keeps clips in memory; files would be half-written ones */
    if (!fired) {
        EXPECT_OK(st, err);
        return false;
    }
    if (st == DUET_OK) FAIL("allocation %lld was refused and the run still succeeded", (long long)nth);
    if (st != DUET_E_MEMORY)
        FAIL("allocation %lld: status %s: %s", (long long)nth, duet_status_name(st), err.message);
    EXPECT(err.message[0] != '\0');
    EXPECT(!committed);
    return true;
}

TEST(refused_memory_is_reported_and_nothing_leaks, 240000) {
    pipeline_spec spec = {.model = pipeline_model(0, "native"),
                          .width = 128,
                          .height = 128,
                          .frames = 22,
                          .points = 2,
                          .seed = 1};
    int64_t nth = 0, runs = 0;
    while (run_once(&spec, nth)) {
        nth += nth < 40 ? 3 : nth / 12;
        runs++;
    }
    printf("    %lld places tried, the run makes fewer than %lld allocations\n", (long long)runs,
           (long long)nth);
    EXPECT(runs > 20);
}
