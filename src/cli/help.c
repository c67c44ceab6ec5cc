/* help.c - the option table as text for a terminal and as docs/options.md. */
#include "cli/options.h"

#include <string.h>

enum { HELP_COLUMN = 34, HELP_WIDTH = 100 };

/* Words of `text` from column HELP_COLUMN, wrapped at HELP_WIDTH; `at` is the column the line has reached. */
static void wrap(FILE *f, int at, const char *text) {
    if (at >= HELP_COLUMN - 1) {
        fputc('\n', f);
        at = 0;
    }
    fprintf(f, "%*s", HELP_COLUMN - at, "");
    int column = HELP_COLUMN;
    for (bool first = true; *text; first = false) {
        int length = (int)strcspn(text, " ");
        if (!first && column + 1 + length > HELP_WIDTH) {
            fprintf(f, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        } else if (!first) {
            fputc(' ', f);
            column++;
        }
        fprintf(f, "%.*s", length, text);
        column += length;
        text += length;
        text += *text == ' ';
    }
    fputc('\n', f);
}

/* Help, range or choices, default: one sentence after the other. */
static void describe(const opt_row *row, char *buf, size_t buf_bytes) {
    int n = snprintf(buf, buf_bytes, "%s", row->help);
    if (row->choices) n += snprintf(buf + n, buf_bytes - (size_t)n, " {%s}", row->choices);
    if (row->type == INT && row->high > row->low && row->high < INT64_MAX)
        n += snprintf(buf + n, buf_bytes - (size_t)n, " {%lld to %lld}", (long long)row->low,
                      (long long)row->high);
    if (row->fallback) snprintf(buf + n, buf_bytes - (size_t)n, " [%s]", row->fallback);
}

void help_command(const command *cmd, FILE *f) {
    const opt_row *word = &OPT_ROWS[cmd->word];
    fprintf(f, "duet %s - %s\n\nusage: duet %s [%s] [options]   (the word stands for --%s)\n\noptions:\n",
            cmd->name, cmd->summary, cmd->name, word->metavar, word->spelling);
    for (int i = 0; i < OPT_N; i++) {
        const opt_row *row = &OPT_ROWS[i];
        if (!(row->commands & cmd->mask)) continue;
        char text[512];
        describe(row, text, sizeof text);
        int at = fprintf(f, "  --%s%s%s", row->spelling, row->metavar ? " " : "",
                         row->metavar ? row->metavar : "");
        wrap(f, at, text);
        const char *other;
        for (int k = 0; (other = opt_alias(row->id, &k));)
            fprintf(f, "  --%s%*s(the same)\n", other, HELP_COLUMN - 4 - (int)strlen(other), "");
    }
    fputs("\nAlso --option=VALUE; a switch also takes true or false and has a --no- form; _ and - are the "
          "same.\n",
          f);
}

void help_program(FILE *f) {
    fprintf(f,
            "duet %s - video with stereo sound from a prompt, with MiniMax-H3\n\nusage: duet COMMAND "
            "[options]\n\n",
            duet_version());
    for (int i = 0; i < N_COMMANDS; i++) fprintf(f, "  %-12s %s\n", COMMANDS[i].name, COMMANDS[i].summary);
    fputs("  completion   print a completion script for bash or zsh\n"
          "  version      print the version\n"
          "  help         show this, or the options of a command\n"
          "\nA first clip:\n  duet generate --model DIR --prompt \"a lighthouse in a storm\" --output "
          "clip.mp4\n",
          f);
}

static void markdown_row(const opt_row *row, FILE *f) {
    char text[512];
    describe(row, text, sizeof text);
    fprintf(f, "| `--%s%s%s`", row->spelling, row->metavar ? " " : "", row->metavar ? row->metavar : "");
    const char *other;
    for (int k = 0; (other = opt_alias(row->id, &k));) fprintf(f, "<br>`--%s`", other);
    fputs(" | ", f);
    for (const char *p = text; *p; p++) {
        if (*p == '|') fputc('\\', f);
        fputc(*p, f);
    }
    fputs(" |\n", f);
}

void help_markdown(FILE *f) {
    fputs("# Options\n\nGenerated from `src/cli/options.def` by `duet help --markdown`; do not edit. Choices "
          "and ranges stand "
          "in braces, defaults in brackets.\n",
          f);
    for (int i = 0; i < N_COMMANDS; i++) {
        fprintf(f,
                "\n## duet %s\n\n%s. A word without dashes stands for `--%s`.\n\n| Option | Meaning "
                "|\n|---|---|\n",
                COMMANDS[i].name, COMMANDS[i].summary, OPT_ROWS[COMMANDS[i].word].spelling);
        for (int k = 0; k < OPT_N; k++) {
            if (OPT_ROWS[k].commands & COMMANDS[i].mask) markdown_row(&OPT_ROWS[k], f);
        }
    }
}
