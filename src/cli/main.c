/* main.c - the first subcommand, until the option table takes over. */
#include <stdio.h>
#include <string.h>

int duet_cmd_synth(int argc, char **argv);

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "synth") == 0) return duet_cmd_synth(argc - 1, argv + 1);
    fprintf(stderr,
            "usage: duet synth --out DIR [--shape tiny|small|full] [--layout native|diffusers]\n"
            "                  [--partition fl2va|ref2va|both] [--seed N] [--tokenizer DIR] [--yes]\n");
    return 2;
}
