/* options.h - command lines, read by one table (options.def).
 *
 *     --flag value   --flag=value   --switch   --switch=true|false   --no-switch   words without dashes   --
 *
 * Dashes and underscores are the same. A repeated spelling: the last wins. Two spellings of one thing, or
 * two options of one group on different sides, are refused, even when they agree. Numbers are read whole, in
 * the C locale. */
#ifndef DUET_CLI_OPTIONS_H
#define DUET_CLI_OPTIONS_H

#include <stdio.h>

#include "base/status.h"

typedef enum opt_type { TEXT, WORD, INT, NUMBER, FLAG, LIST, FILE_NAME, DIR_NAME } opt_type;

enum { G = 1, D = 2, P = 4, I = 8, S = 16, B = 32 };

typedef enum opt_id {
#define OPT(id, ...) OPT_##id,
#include "cli/options.def"
    OPT_N
} opt_id;

typedef struct opt_row {
    opt_id id;
    const char *spelling;
    opt_type type;
    const char *metavar;
    int commands;
    int group, side;
    int64_t low, high;
    const char *fallback, *choices, *help;
} opt_row;

typedef struct opt_value {
    bool given, on;
    const char *text;     /* as written; borrowed from argv */
    const char *spelling; /* the one that was used; "" for a word without dashes */
    int64_t integer;
    double number;
    double *list;
    int32_t n_list;
} opt_value;

typedef struct command {
    int mask;
    const char *name;
    opt_id word; /* what a word without dashes fills */
    const char *summary;
} command;

typedef struct opt_set {
    const command *command;
    opt_value value[OPT_N];
} opt_set;

extern const opt_row OPT_ROWS[OPT_N];
extern const command COMMANDS[];
extern const int N_COMMANDS;

const command *command_find(const char *name);
const char *command_nearest(const char *name); /* NULL when nothing is near */

/* Fill `set` (zeroed) from words[0..n). DUET_E_REQUEST with param and code otherwise; close frees the lists.
 * */
duet_status opt_parse(const command *cmd, int n, char *const *words, opt_set *set, duet_error *err);
void opt_close(opt_set *set);

/* A value against the bounds or choices of its own row, for options that no request judges: out_of_range or
 * invalid_value. What was not given is in order. */
duet_status opt_judge(const opt_set *set, opt_id id, duet_error *err);

/* --json before anything else was understood, so that a bad command line is answered in JSON too. */
bool opt_wants_json(int n, char *const *words);

/* "num-frames" -> "num_frames": the name of a field in messages. Into buf; returns buf. */
const char *opt_field(const opt_row *row, char *buf, size_t buf_bytes);

/* Aliases in table order: *at starts 0; NULL after the last. */
const char *opt_alias(opt_id id, int *at);

/* Edits between two words, capped; for suggestions. */
int edit_distance(const char *a, const char *b);

void help_program(FILE *f);
void help_command(const command *cmd, FILE *f);
void help_markdown(FILE *f); /* docs/options.md */
bool completion_script(const char *shell, FILE *f);

#endif
