/* completion.c - completion scripts for bash and zsh, from the option table.
 *
 * Both complete commands, options of the command, choices of an option, and file or directory names where
 * the option takes one. The scripts are data: they call nothing back. */
#include "cli/options.h"

#include <string.h>

static void put_choices(const char *choices, FILE *f) {
    for (const char *p = choices; *p; p++) fputc(*p == '|' ? ' ' : *p, f);
}

static void put_commands(FILE *f) {
    for (int i = 0; i < N_COMMANDS; i++) fprintf(f, "%s ", COMMANDS[i].name);
    fputs("completion version help", f);
}

static void put_options(const command *cmd, FILE *f) {
    for (int i = 0; i < OPT_N; i++) {
        if (!(OPT_ROWS[i].commands & cmd->mask)) continue;
        fprintf(f, "--%s ", OPT_ROWS[i].spelling);
        const char *other;
        for (int k = 0; (other = opt_alias(OPT_ROWS[i].id, &k));) fprintf(f, "--%s ", other);
    }
}

/* Rows of one command that take a value; spellings "--a|--b" of a row. */
static void put_spellings(const opt_row *row, FILE *f) {
    fprintf(f, "--%s", row->spelling);
    const char *other;
    for (int k = 0; (other = opt_alias(row->id, &k));) fprintf(f, "|--%s", other);
}

static void bash_values(const command *cmd, FILE *f) {
    for (int i = 0; i < OPT_N; i++) {
        const opt_row *row = &OPT_ROWS[i];
        if (!(row->commands & cmd->mask) || row->type == FLAG) continue;
        fputs("            ", f);
        put_spellings(row, f);
        if (row->choices) {
            fputs(") COMPREPLY=($(compgen -W '", f);
            put_choices(row->choices, f);
            fputs("' -- \"$cur\")) ;;\n", f);
        } else if (row->type == FILE_NAME || row->type == DIR_NAME) {
            fprintf(f, ") COMPREPLY=($(compgen -%c -- \"$cur\")) ;;\n", row->type == DIR_NAME ? 'd' : 'f');
        } else {
            fputs(") COMPREPLY=() ;;\n", f);
        }
    }
}

static void bash_script(FILE *f) {
    fputs("# bash completion for duet: source <(duet completion bash)\n"
          "_duet() {\n"
          "    local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" "
          "cmd=\"${COMP_WORDS[1]}\"\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W '",
          f);
    put_commands(f);
    fputs("' -- \"$cur\")); return; fi\n    case \"$cmd\" in\n", f);
    for (int i = 0; i < N_COMMANDS; i++) {
        fprintf(f, "    %s)\n        case \"$prev\" in\n", COMMANDS[i].name);
        bash_values(&COMMANDS[i], f);
        fputs("            *) case \"$cur\" in -*) COMPREPLY=($(compgen -W '", f);
        put_options(&COMMANDS[i], f);
        fprintf(f,
                "' -- \"$cur\")) ;; *) COMPREPLY=($(compgen -%c -- \"$cur\")) ;; esac ;;\n        esac ;;\n",
                OPT_ROWS[COMMANDS[i].word].type == DIR_NAME ? 'd' : 'f');
    }
    fputs("    completion) COMPREPLY=($(compgen -W 'bash zsh' -- \"$cur\")) ;;\n    help) "
          "COMPREPLY=($(compgen -W '",
          f);
    put_commands(f);
    fputs("' -- \"$cur\")) ;;\n    esac\n}\ncomplete -o filenames -F _duet duet\n", f);
}

/* zsh's _arguments: '--name[help]:metavar:action'; quotes and brackets of the help would end it early. */
static void zsh_help(const char *text, FILE *f) {
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            fputs("'\\''", f);
        else if (strchr("[]:\\", *p))
            fprintf(f, "\\%c", *p);
        else
            fputc(*p, f);
    }
}

static void zsh_option(const opt_row *row, const char *spelling, FILE *f) {
    fprintf(f, "            '--%s[", spelling);
    zsh_help(row->help, f);
    fputc(']', f);
    if (row->type != FLAG) {
        fputc(':', f);
        zsh_help(row->metavar, f);
        fputc(':', f);
        if (row->choices) {
            fputc('(', f);
            for (const char *p = row->choices; *p; p++)
                fprintf(f, *p == ':' ? "\\%c" : "%c", *p == '|' ? ' ' : *p);
            fputc(')', f);
        } else if (row->type == FILE_NAME) {
            fputs("_files", f);
        } else if (row->type == DIR_NAME) {
            fputs("_files -/", f);
        }
    }
    fputs("' \\\n", f);
}

static void zsh_script(FILE *f) {
    fputs("#compdef duet\n# zsh completion for duet: source <(duet completion zsh)\n_duet() {\n"
          "    if (( CURRENT == 2 )); then compadd -- ",
          f);
    put_commands(f);
    fputs("; return; fi\n    local cmd=\"${words[2]}\"\n    shift words\n    (( CURRENT-- ))\n    case "
          "\"$cmd\" in\n",
          f);
    for (int i = 0; i < N_COMMANDS; i++) {
        fprintf(f, "    %s)\n        _arguments \\\n", COMMANDS[i].name);
        for (int k = 0; k < OPT_N; k++) {
            const opt_row *row = &OPT_ROWS[k];
            if (!(row->commands & COMMANDS[i].mask)) continue;
            zsh_option(row, row->spelling, f);
            const char *other;
            for (int a = 0; (other = opt_alias(row->id, &a));) zsh_option(row, other, f);
        }
        fprintf(f, "            '*:%s:%s' ;;\n", OPT_ROWS[COMMANDS[i].word].spelling,
                OPT_ROWS[COMMANDS[i].word].type == DIR_NAME ? "_files -/" : "_files");
    }
    fputs("    completion) compadd bash zsh ;;\n    help) compadd -- ", f);
    put_commands(f);
    fputs(" ;;\n    esac\n}\ncompdef _duet duet\n", f);
}

bool completion_script(const char *shell, FILE *f) {
    if (!strcmp(shell, "bash")) return bash_script(f), true;
    if (!strcmp(shell, "zsh")) return zsh_script(f), true;
    return false;
}
