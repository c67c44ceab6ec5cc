/* options.c - the parser. See options.h for the syntax and options.def for the rows.
 *
 * Values are only read here, not judged: whether 95 frames are too few is the request's business. What is
 * judged is what no request could hold: a number that is not one, or that is too long for 64 bits. */
#include "cli/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

const opt_row OPT_ROWS[OPT_N] = {
#define OPT(id, spelling, type, metavar, commands, group, side, low, high, fallback, choices, help)          \
    {OPT_##id, spelling, type, metavar, commands, group, side, low, high, fallback, choices, help},
#include "cli/options.def"
};

typedef struct alias {
    const char *spelling;
    opt_id id;
} alias;
static const alias ALIASES[] = {
#define OPT(...)
#define ALIAS(spelling, id) {spelling, OPT_##id},
#include "cli/options.def"
#undef ALIAS
};
enum { N_ALIASES = sizeof ALIASES / sizeof ALIASES[0] };

const command COMMANDS[] = {
#define COMMAND(id, mask, name, word, summary) {mask, name, OPT_##word, summary},
#include "cli/commands.def"
};
const int N_COMMANDS = (int)(sizeof COMMANDS / sizeof COMMANDS[0]);

/* ---- looking up
 * ---------------------------------------------------------------------------------------------- */

static char folded(char c) {
    return c == '_' ? '-' : c;
}

static bool same_word(const char *a, const char *b) {
    while (*a && folded(*a) == folded(*b)) a++, b++;
    return folded(*a) == folded(*b);
}

const command *command_find(const char *name) {
    for (int i = 0; i < N_COMMANDS; i++) {
        if (!strcmp(COMMANDS[i].name, name)) return &COMMANDS[i];
    }
    return NULL;
}

const char *opt_alias(opt_id id, int *at) {
    while (*at < N_ALIASES) {
        const alias *a = &ALIASES[(*at)++];
        if (a->id == id) return a->spelling;
    }
    return NULL;
}

const char *opt_field(const opt_row *row, char *buf, size_t buf_bytes) {
    snprintf(buf, buf_bytes, "%s", row->spelling);
    for (char *p = buf; *p; p++) {
        if (*p == '-') *p = '_';
    }
    return buf;
}

/* The row that a spelling names in this command; *spelling: the table's own copy of the word. */
static const opt_row *find_row(const command *cmd, const char *name, const char **spelling) {
    for (int i = 0; i < OPT_N; i++) {
        *spelling = OPT_ROWS[i].spelling;
        if ((OPT_ROWS[i].commands & cmd->mask) && same_word(*spelling, name)) return &OPT_ROWS[i];
    }
    for (int i = 0; i < N_ALIASES; i++) {
        *spelling = ALIASES[i].spelling;
        const opt_row *row = &OPT_ROWS[ALIASES[i].id];
        if ((row->commands & cmd->mask) && same_word(*spelling, name)) return row;
    }
    return NULL;
}

/* ---- suggestions
 * --------------------------------------------------------------------------------------------- */

enum { MAX_WORD = 64 };

int edit_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    if (n >= MAX_WORD || m >= MAX_WORD) return MAX_WORD;
    int row[MAX_WORD + 1];
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int change = diagonal + (folded(a[i - 1]) != folded(b[j - 1]));
            diagonal = row[j];
            int gap = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = gap < change ? gap : change;
        }
    }
    return row[m];
}

typedef struct best {
    const char *word;
    int distance;
} best;

static void consider(best *b, const char *typed, const char *word) {
    int d = edit_distance(typed, word);
    if (!strncmp(word, typed, strlen(typed)) && *typed) d = d > 2 ? 2 : d; /* a beginning is always near */
    if (d < b->distance) *b = (best){word, d};
}

static const char *nearest_option(const command *cmd, const char *typed) {
    best b = {NULL, (int)strlen(typed) / 2 + 1};
    for (int i = 0; i < OPT_N; i++) {
        if (OPT_ROWS[i].commands & cmd->mask) consider(&b, typed, OPT_ROWS[i].spelling);
    }
    for (int i = 0; i < N_ALIASES; i++) {
        if (OPT_ROWS[ALIASES[i].id].commands & cmd->mask) consider(&b, typed, ALIASES[i].spelling);
    }
    return b.word;
}

const char *command_nearest(const char *name) {
    best b = {NULL, 4};
    for (int i = 0; i < N_COMMANDS; i++) consider(&b, name, COMMANDS[i].name);
    static const char *const others[] = {"completion", "version", "help"};
    for (int i = 0; i < 3; i++) consider(&b, name, others[i]);
    return b.word;
}

/* ---- values
 * -------------------------------------------------------------------------------------------------- */

static duet_status refuse(const opt_row *row, const char *code, const char *text, const char *nearest,
                          const char *rule, duet_error *err) {
    char field[MAX_WORD];
    return duet_refuse(err, opt_field(row, field, sizeof field), code, text, nearest, "%s", rule);
}

static const char *skip_digits(const char *p) {
    while (*p >= '0' && *p <= '9') p++;
    return p;
}

static const char *skip_sign(const char *p) {
    return *p == '-' || *p == '+' ? p + 1 : p;
}

static duet_status read_int(const opt_row *row, const char *text, opt_value *v, duet_error *err) {
    const char *digits = skip_sign(text), *end = skip_digits(digits);
    if (end == digits || *end) return refuse(row, "invalid_type", text, NULL, "must be a whole number", err);
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    v->integer = value;
    if (errno != ERANGE && value != INT64_MIN) return DUET_OK;
    char nearest[32], rule[96];
    snprintf(nearest, sizeof nearest, "%lld", (long long)(*text == '-' ? row->low : row->high));
    snprintf(rule, sizeof rule, "must be between %lld and %lld", (long long)row->low, (long long)row->high);
    return refuse(row, "out_of_range", text, nearest, rule, err);
}

/* sign digits [. digits] [e sign digits]; nothing else that strtod would take ("0x1p3", "inf", " 1"). */
static const char *skip_number(const char *p) {
    p = skip_sign(p);
    const char *whole = p;
    p = skip_digits(p);
    bool any = p > whole;
    if (*p == '.') {
        const char *fraction = p + 1;
        p = skip_digits(fraction);
        any = any || p > fraction;
    }
    if (!any) return NULL;
    if (*p == 'e' || *p == 'E') {
        const char *digits = skip_sign(p + 1);
        p = skip_digits(digits);
        if (p == digits) return NULL;
    }
    return p;
}

static duet_status read_number(const opt_row *row, const char *text, opt_value *v, duet_error *err) {
    const char *end = skip_number(text);
    if (!end || *end) return refuse(row, "invalid_type", text, NULL, "must be a finite number", err);
    v->number = strtod(text, NULL);
    return DUET_OK;
}

static duet_status read_list(const opt_row *row, const char *text, opt_value *v, duet_error *err) {
    int32_t n = 1;
    for (const char *p = text; *p && n < 10000; p++) n += *p == ',';
    duet_free(v->list);
    v->n_list = 0;
    v->list = duet_calloc((size_t)n, sizeof *v->list, DUET_MEM_MISC);
    if (!v->list) return duet_fail(err, DUET_E_MEMORY, "out of memory");
    for (const char *p = text;; p++) {
        const char *end = skip_number(p);
        if (!end || (*end && *end != ',') || v->n_list == n)
            return refuse(row, "invalid_type", text, NULL, "must be numbers separated by commas", err);
        v->list[v->n_list++] = strtod(p, NULL);
        p = end;
        if (!*p) return DUET_OK;
    }
}

static bool read_switch(const char *text, bool *on) {
    static const char *const yes[] = {"true", "1", "yes", "on"}, *const no[] = {"false", "0", "no", "off"};
    for (int i = 0; i < 4; i++) {
        if (!strcmp(text, yes[i]) || !strcmp(text, no[i])) {
            *on = !strcmp(text, yes[i]);
            return true;
        }
    }
    return false;
}

static duet_status read_value(const opt_row *row, const char *text, opt_value *v, duet_error *err) {
    switch (row->type) {
    case INT:
        return read_int(row, text, v, err);
    case NUMBER:
        return read_number(row, text, v, err);
    case LIST:
        return read_list(row, text, v, err);
    case FLAG:
        if (read_switch(text, &v->on)) return DUET_OK;
        return refuse(row, "invalid_type", text, "true", "must be true or false", err);
    default:
        return DUET_OK;
    }
}

/* ---- bounds and choices
 * -------------------------------------------------------------------------------------- */

static bool is_choice(const char *choices, const char *text) {
    size_t n = strlen(text);
    for (const char *p = choices; p; p = strchr(p, '|')) {
        p += *p == '|';
        if (strcspn(p, "|") == n && !strncmp(p, text, n)) return true;
    }
    return false;
}

/* "a|b|c" -> "must be a, b or c" */
static void name_choices(const char *choices, char *rule, size_t rule_bytes) {
    size_t at = (size_t)snprintf(rule, rule_bytes, "must be ");
    const char *last = strrchr(choices, '|');
    for (const char *p = choices; *p && at + 5 < rule_bytes; p++) {
        if (*p == '|')
            at += (size_t)snprintf(rule + at, rule_bytes - at, "%s", p == last ? " or " : ", ");
        else
            rule[at++] = *p, rule[at] = '\0';
    }
}

duet_status opt_judge(const opt_set *set, opt_id id, duet_error *err) {
    const opt_row *row = &OPT_ROWS[id];
    const opt_value *v = &set->value[id];
    char rule[160], nearest[MAX_WORD];
    if (!v->given) return DUET_OK;
    if (row->type == INT && (v->integer < row->low || v->integer > row->high)) {
        snprintf(rule, sizeof rule, "must be between %lld and %lld", (long long)row->low,
                 (long long)row->high);
        snprintf(nearest, sizeof nearest, "%lld", (long long)(v->integer < row->low ? row->low : row->high));
        return refuse(row, "out_of_range", v->text, nearest, rule, err);
    }
    if (row->type == WORD && !is_choice(row->choices, v->text)) {
        name_choices(row->choices, rule, sizeof rule);
        snprintf(nearest, sizeof nearest, "%.*s", (int)strcspn(row->choices, "|"), row->choices);
        return refuse(row, "invalid_value", v->text, nearest, rule, err);
    }
    return DUET_OK;
}

/* ---- the line
 * ------------------------------------------------------------------------------------------------ */

static duet_status unknown(const command *cmd, const char *word, duet_error *err) {
    char shown[MAX_WORD], nearest[MAX_WORD + 2] = "";
    snprintf(shown, sizeof shown, "%.*s", (int)strcspn(word, "="), word);
    const char *near = nearest_option(cmd, shown + 2);
    if (near) snprintf(nearest, sizeof nearest, "--%s", near);
    return duet_refuse(err, shown, "unknown_parameter", NULL, nearest, "is not an option of duet %s",
                       cmd->name);
}

static duet_status set_value(opt_set *set, const opt_row *row, const char *spelling, const char *text,
                             duet_error *err) {
    opt_value *v = &set->value[row->id];
    if (v->given && strcmp(v->spelling, spelling)) {
        char rule[160];
        snprintf(rule, sizeof rule, "was given twice, as %s%s and as %s%s", *v->spelling ? "--" : "",
                 *v->spelling ? v->spelling : "a word", *spelling ? "--" : "",
                 *spelling ? spelling : "a word");
        return refuse(row, "conflicting_parameters", text, NULL, rule, err);
    }
    v->given = true;
    v->spelling = spelling;
    v->text = text;
    return read_value(row, text, v, err);
}

/* "--size" where --size wants a value: almost always a forgotten value. A value may start with dashes after
 * "=". */
static bool looks_like_option(const command *cmd, const char *word) {
    const char *spelling;
    char name[MAX_WORD];
    if (strncmp(word, "--", 2) || !word[2]) return false;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    return find_row(cmd, name, &spelling) != NULL;
}

/* One option at words[at]; returns how many words it took, 0 on failure. */
static int take_option(opt_set *set, int n, char *const *words, int at, duet_error *err) {
    const char *word = words[at], *equals = strchr(word, '='), *spelling;
    char name[MAX_WORD];
    size_t length = equals ? (size_t)(equals - word) - 2 : strlen(word) - 2;
    snprintf(name, sizeof name, "%.*s", (int)length, word + 2);
    const opt_row *row = length < sizeof name ? find_row(set->command, name, &spelling) : NULL;
    if (!row && !strncmp(name, "no-", 3) && !equals) {
        row = find_row(set->command, name + 3, &spelling);
        if (row && row->type == FLAG) return set_value(set, row, spelling, "false", err) == DUET_OK;
        row = NULL;
    }
    if (!row) return unknown(set->command, word, err), 0;
    if (equals) return set_value(set, row, spelling, equals + 1, err) == DUET_OK;
    const char *next = at + 1 < n ? words[at + 1] : NULL;
    if (row->type == FLAG) {
        bool written = next && (!strcmp(next, "true") || !strcmp(next, "false"));
        return set_value(set, row, spelling, written ? next : "true", err) == DUET_OK ? 1 + written : 0;
    }
    if (!next || looks_like_option(set->command, next))
        return refuse(row, "missing_required_parameter", NULL, NULL, "needs a value", err), 0;
    return set_value(set, row, spelling, next, err) == DUET_OK ? 2 : 0;
}

static duet_status check_groups(const opt_set *set, duet_error *err) {
    for (int i = 0; i < OPT_N; i++) {
        const opt_row *a = &OPT_ROWS[i];
        if (!a->group || !set->value[i].given) continue;
        for (int j = 0; j < i; j++) {
            const opt_row *b = &OPT_ROWS[j];
            if (b->group != a->group || b->side == a->side || !set->value[j].given) continue;
            char rule[MAX_WORD + 40];
            snprintf(rule, sizeof rule, "cannot be given together with --%s", b->spelling);
            return refuse(a, "conflicting_parameters", set->value[i].text, NULL, rule, err);
        }
    }
    return DUET_OK;
}

duet_status opt_parse(const command *cmd, int n, char *const *words, opt_set *set, duet_error *err) {
    set->command = cmd;
    bool only_words = false;
    for (int at = 0; at < n;) {
        if (!only_words && !strcmp(words[at], "--")) {
            only_words = true;
            at++;
        } else if (!only_words && !strncmp(words[at], "--", 2)) {
            int taken = take_option(set, n, words, at, err);
            if (!taken) return DUET_E_REQUEST;
            at += taken;
        } else if (!only_words && !strcmp(words[at], "-h")) {
            set->value[OPT_help].given = set->value[OPT_help].on = true;
            at++;
        } else if (!only_words && words[at][0] == '-' && words[at][1]) {
            return duet_refuse(err, words[at], "unknown_parameter", NULL, NULL,
                               "is not an option; options start with two dashes");
        } else {
            const opt_row *row = &OPT_ROWS[cmd->word];
            if (set->value[cmd->word].given && !*set->value[cmd->word].spelling)
                return duet_refuse(err, words[at], "unknown_parameter", NULL, NULL,
                                   "is one word too many (quote a prompt, give it with --prompt)");
            duet_status st = set_value(set, row, "", words[at], err);
            if (st != DUET_OK) return st;
            at++;
        }
    }
    if (set->value[OPT_help].on) return DUET_OK;
    duet_status st = check_groups(set, err);
    return st == DUET_OK ? opt_judge(set, OPT_threads, err) : st;
}

void opt_close(opt_set *set) {
    for (int i = 0; i < OPT_N; i++) {
        duet_free(set->value[i].list);
        set->value[i].list = NULL;
    }
}

bool opt_wants_json(int n, char *const *words) {
    bool json = false;
    for (int i = 0; i < n && strcmp(words[i], "--"); i++) {
        if (!strcmp(words[i], "--json")) json = i + 1 >= n || strcmp(words[i + 1], "false") != 0;
        if (!strcmp(words[i], "--json=true")) json = true;
    }
    return json;
}
