/* options_test.c - the syntax of command lines, and that the table is consistent with itself. */
#include "harness/harness.h"

#include "cli/options.c"

static opt_set set;
static duet_error err;

/* Parse words of one command; the list ends with NULL. */
static duet_status parse(const char *cmd, char *const *words) {
    int n = 0;
    while (words[n]) n++;
    opt_close(&set);
    memset(&set, 0, sizeof set);
    err = (duet_error){0};
    return opt_parse(command_find(cmd), n, words, &set, &err);
}
#define PARSE(cmd, ...) parse(cmd, (char *const[]){__VA_ARGS__, NULL})

static void expect_error(const char *param, const char *code, const char *nearest) {
    EXPECT_STR(err.param, param);
    EXPECT_STR(err.code, code);
    if (nearest) EXPECT_STR(err.nearest, nearest);
}

TEST(options_spellings, 1000) {
    EXPECT_EQ(
        PARSE("generate", "--num-frames", "100", "--flow_shift=6.5", "--model-path", "m", "--any-length"),
        DUET_OK);
    EXPECT_EQ(set.value[OPT_num_frames].integer, 100);
    EXPECT(set.value[OPT_flow_shift].number == 6.5);
    EXPECT_STR(set.value[OPT_model].text, "m");
    EXPECT(set.value[OPT_any_length].on);
    EXPECT_EQ(PARSE("generate", "dir", "--prompt=--size", "--seed", "-1"), DUET_OK);
    EXPECT_STR(set.value[OPT_model].text, "dir");
    EXPECT_STR(set.value[OPT_prompt].text, "--size");
    EXPECT_EQ(set.value[OPT_seed].integer, -1);
    EXPECT_EQ(PARSE("generate", "--", "--model"), DUET_OK);
    EXPECT_STR(set.value[OPT_model].text, "--model");
    EXPECT_EQ(PARSE("generate", "--prompt", ""), DUET_OK);
    EXPECT(set.value[OPT_prompt].given);
}

TEST(options_switches, 1000) {
    EXPECT_EQ(PARSE("generate", "--json", "--quiet=false", "--no-overwrite", "--keep-latents", "true"),
              DUET_OK);
    EXPECT(set.value[OPT_json].on && !set.value[OPT_quiet].on && !set.value[OPT_overwrite].on);
    EXPECT(set.value[OPT_keep_latents].on);
    EXPECT_EQ(PARSE("generate", "--json=maybe"), DUET_E_REQUEST);
    expect_error("json", "invalid_type", "true");
    EXPECT_EQ(PARSE("generate", "--no-seed"), DUET_E_REQUEST);
    expect_error("--no-seed", "unknown_parameter", NULL);
}

TEST(options_repeated, 1000) {
    EXPECT_EQ(PARSE("generate", "--seed", "1", "--seed", "2"), DUET_OK);
    EXPECT_EQ(set.value[OPT_seed].integer, 2);
    EXPECT_EQ(PARSE("generate", "--num-outputs", "2", "--num-outputs-per-prompt", "2"), DUET_E_REQUEST);
    expect_error("num_outputs_per_prompt", "conflicting_parameters", NULL);
    EXPECT_EQ(PARSE("generate", "a", "--model", "a"), DUET_E_REQUEST);
    expect_error("model", "conflicting_parameters", NULL);
    EXPECT_EQ(PARSE("generate", "a", "b"), DUET_E_REQUEST);
    EXPECT_EQ(PARSE("generate", "--sigmas", "1,0", "--sigmas", "1,0.5,0"), DUET_OK);
    EXPECT_EQ(set.value[OPT_sigmas].n_list, 3);
}

/* Every two options on different sides of a group, in both orders. */
TEST(options_exclusions, 1000) {
    int pairs = 0;
    for (int i = 0; i < OPT_N; i++) {
        for (int j = 0; j < OPT_N; j++) {
            const opt_row *a = &OPT_ROWS[i], *b = &OPT_ROWS[j];
            if (!a->group || a->group != b->group || !(a->commands & b->commands)) continue;
            char one[64], two[64];
            snprintf(one, sizeof one, "--%s=1", a->spelling);
            snprintf(two, sizeof two, "--%s=1", b->spelling);
            const char *cmd = a->commands & b->commands & G ? "generate" : "plan";
            duet_status st = PARSE(cmd, one, two);
            EXPECT_EQ(st, a->side == b->side ? DUET_OK : DUET_E_REQUEST);
            if (st != DUET_OK) EXPECT_STR(err.code, "conflicting_parameters");
            pairs += st != DUET_OK;
        }
    }
    EXPECT(pairs > 20);
}

TEST(options_numbers, 1000) {
    char *bad[] = {"", " 1", "1 ", "1.5", "0x10", "1e3", "one", "--1", "+", "1,0", "nan"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char word[64];
        snprintf(word, sizeof word, "--seed=%s", bad[i]);
        EXPECT_EQ(PARSE("generate", word), DUET_E_REQUEST);
        expect_error("seed", "invalid_type", NULL);
    }
    EXPECT_EQ(PARSE("generate", "--seed", "9223372036854775807"), DUET_OK);
    EXPECT_EQ(PARSE("generate", "--seed", "9223372036854775808"), DUET_E_REQUEST);
    expect_error("seed", "out_of_range", "9223372036854775807");
    EXPECT_EQ(PARSE("generate", "--num-frames", "-99999999999999999999"), DUET_E_REQUEST);
    expect_error("num_frames", "out_of_range", "96");
    char *odd[] = {"", "inf", "nan", "0x1p3", "1e", ".", "1e+", " 1", "1 ", "1,5"};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        char word[64];
        snprintf(word, sizeof word, "--flow-shift=%s", odd[i]);
        EXPECT_EQ(PARSE("generate", word), DUET_E_REQUEST);
        expect_error("flow_shift", "invalid_type", NULL);
    }
    EXPECT_EQ(PARSE("generate", "--flow-shift", "1.5e+1"), DUET_OK);
    EXPECT(set.value[OPT_flow_shift].number == 15.0);
    EXPECT_EQ(PARSE("generate", "--flow-shift", ".5"), DUET_OK);
    EXPECT_EQ(PARSE("generate", "--flow-shift", "5."), DUET_OK);
}

TEST(options_lists, 1000) {
    EXPECT_EQ(PARSE("generate", "--base-schedule", "0.999,0.5,0"), DUET_OK);
    EXPECT_EQ(set.value[OPT_base_schedule].n_list, 3);
    EXPECT(set.value[OPT_base_schedule].list[0] == 0.999);
    char *bad[] = {"", ",", "1,", ",1", "1,,0", "1;0", "1, 0", "[1,0]", "1,x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT_EQ(PARSE("generate", "--sigmas", bad[i]), DUET_E_REQUEST);
        expect_error("sigmas", "invalid_type", NULL);
    }
    opt_close(&set);
}

TEST(options_suggestions, 1000) {
    EXPECT_EQ(PARSE("generate", "--num-frame", "3"), DUET_E_REQUEST);
    expect_error("--num-frame", "unknown_parameter", "--num-frames");
    EXPECT_EQ(PARSE("generate", "--hieght=3"), DUET_E_REQUEST);
    expect_error("--hieght", "unknown_parameter", "--height");
    EXPECT_EQ(PARSE("generate", "--zzzzzzzzzzzz"), DUET_E_REQUEST);
    expect_error("--zzzzzzzzzzzz", "unknown_parameter", "");
    EXPECT_EQ(PARSE("info", "--prompt", "x"), DUET_E_REQUEST); /* an option of another command */
    char longest[300];
    memset(longest, 'x', sizeof longest - 1);
    longest[0] = longest[1] = '-';
    longest[sizeof longest - 1] = '\0';
    EXPECT_EQ(PARSE("generate", longest), DUET_E_REQUEST);
    EXPECT_STR(command_nearest("genrate"), "generate");
    EXPECT(command_nearest("xyzzy") == NULL);
}

TEST(options_missing_value, 1000) {
    EXPECT_EQ(PARSE("generate", "--prompt"), DUET_E_REQUEST);
    expect_error("prompt", "missing_required_parameter", NULL);
    EXPECT_EQ(PARSE("generate", "--prompt", "--output=a.mp4"), DUET_E_REQUEST);
    expect_error("prompt", "missing_required_parameter", NULL);
    EXPECT_EQ(PARSE("generate", "--prompt", "--not-an-option"), DUET_OK);
}

TEST(options_table_is_consistent, 1000) {
    for (int i = 0; i < OPT_N; i++) {
        const opt_row *a = &OPT_ROWS[i];
        EXPECT_EQ(a->id, i);
        EXPECT((a->type == FLAG) == (a->metavar == NULL));
        EXPECT(a->type != WORD || a->choices);
        EXPECT(a->help && strlen(a->help) < 200);
        for (int j = 0; j < i; j++) {
            if (a->commands & OPT_ROWS[j].commands) EXPECT(strcmp(a->spelling, OPT_ROWS[j].spelling) != 0);
        }
    }
}

TEST(options_json_is_found_early, 1000) {
    char *words[] = {"--bogus", "--json", "x"};
    EXPECT(opt_wants_json(3, words));
    char *off[] = {"--json", "false"};
    EXPECT(!opt_wants_json(2, off));
    char *hidden[] = {"--", "--json"};
    EXPECT(!opt_wants_json(2, hidden));
}
