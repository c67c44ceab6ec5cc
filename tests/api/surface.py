"""Help, version, completion, unknown words: what a person sees before anything runs."""
import os
import pathlib
import re
import shutil
import subprocess

from kit import Skip, check, duet, equal, expect, model, refused, test

COMMANDS = ["generate", "decode", "plan", "info", "synth", "bench"]


def options_of(command):
    """Spellings that the completion offers for a command."""
    script = expect(duet("completion", "bash"), 0).out
    body = script.split(f"    {command})\n", 1)[1].split("esac ;;\n        esac ;;", 1)[0]
    return re.findall(r"--[a-z-]+", body.split("*) case", 1)[1])


@test
def bare_duet_prints_help(tmp):
    bare = expect(duet(), 0)
    equal(bare.out, expect(duet("help"), 0).out, "bare duet")
    equal(bare.out, expect(duet("--help"), 0).out, "--help")
    for command in COMMANDS:
        check(command in bare.out, f"{command} missing from {bare}")


@test
def version_is_one_line(tmp):
    out = expect(duet("version"), 0).out
    check(re.fullmatch(r"duet \d+\.\d+\.\d+\n", out), f"version: {out!r}")
    equal(expect(duet("--version"), 0).out, out, "--version")


@test
def help_mentions_every_option(tmp):
    for command in COMMANDS:
        text = expect(duet("help", command), 0).out
        equal(expect(duet(command, "--help"), 0).out, text, f"{command} --help")
        options = options_of(command)
        check(len(options) > 3, f"completion offers only {options} for {command}")
        for option in options:
            check(re.search(rf"(^|\s){option}(\s|$)", text), f"help {command} does not mention {option}")
        check(not any(line.endswith(" ") for line in text.splitlines()), f"trailing blanks in help {command}")


@test
def options_page_is_generated(tmp):
    page = pathlib.Path(__file__).parents[2] / "docs" / "options.md"
    equal(page.read_text(), expect(duet("help", "--markdown"), 0).out,
          "docs/options.md against 'duet help --markdown' (write one into the other)")


@test
def completion_scripts_parse(tmp):
    script = expect(duet("completion", "bash"), 0).out
    equal(subprocess.run(["bash", "-n"], input=script.encode(), check=False).returncode, 0, "bash -n")
    complete = script + '\nCOMP_WORDS=(duet generate --out); COMP_CWORD=2; _duet; echo "${COMPREPLY[@]}"\n'
    offered = subprocess.run(["bash"], input=complete.encode(), stdout=subprocess.PIPE, check=True).stdout.decode().split()
    check("--output" in offered and "--output-quality" in offered, f"bash offers {offered}")
    complete = script + '\nCOMP_WORDS=(duet generate --noise ""); COMP_CWORD=3; _duet; echo "${COMPREPLY[@]}"\n'
    offered = subprocess.run(["bash"], input=complete.encode(), stdout=subprocess.PIPE, check=True).stdout.decode().split()
    equal(offered, ["sglang", "diffusers"], "choices of --noise in bash")


@test
def completion_script_parses_in_zsh(tmp):
    script = expect(duet("completion", "zsh"), 0).out
    if not shutil.which("zsh"):
        raise Skip("no zsh here")
    equal(subprocess.run(["zsh", "-n"], input=script.encode(), check=False).returncode, 0, "zsh -n")


@test
def completion_of_another_shell_is_refused(tmp):
    refused(duet("completion", "fish"), "shell")
    refused(duet("completion"), "shell")


@test
def unknown_words_get_a_suggestion(tmp):
    check("nearest: generate" in refused(duet("genrate")), "no suggestion for genrate")
    check("nearest: --num-frames" in refused(duet("generate", "--num-frame", "96")), "no suggestion for --num-frame")
    check("nearest: --flow-shift" in refused(duet("plan", "--flowshift", "3")), "no suggestion for --flowshift")
    refused(duet("generate", "--completely-unknown"))
    refused(duet("help", "nothing"))
    for words in (["help", "plan", "info"], ["version", "x"], ["completion", "bash", "zsh"], ["--version", "--verbose"]):
        check("one word too many" in refused(duet(*words), words[-1]), f"{words} taken")
    refused(duet("generate", "--completely-unknown", "--json"), "--completely-unknown", "unknown_parameter")


@test
def closed_and_full_standard_output(tmp):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        expect(duet("help", "generate", stdout=closed), 0)
    with open("/dev/full", "wb") as full:
        expect(duet("help", "generate", stdout=full), 1)


@test
def public_header_compiles_alone(tmp):
    root = pathlib.Path(__file__).parents[2] / "include"
    if not (shutil.which("cc") and shutil.which("c++")):
        raise Skip("no C and C++ compiler here")
    for compiler, language, standard in [("cc", "c", "c11"), ("c++", "c++", "c++11")]:
        done = subprocess.run([compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror",
                               "-fsyntax-only", "-I", root, "-"], input=b'#include "duet/duet.h"\n', stderr=subprocess.PIPE,
                              check=False)
        equal((done.returncode, done.stderr.decode()), (0, ""), f"duet.h as {standard}")


@test
def bench_reports_stages(tmp):
    got = expect(duet("bench", model(), "--size", "128x128", "--runs", 1, "--json"), 0).json()
    equal(sorted(got["stages"]), ["audio_decode", "evaluation", "video_decode"], "stages")
    for name, stage in got["stages"].items():
        check(stage["seconds"] > 0 and stage["flops"] > 0 and stage["percent_of_product"] > 0, f"{name}: {stage}")
    one = expect(duet("bench", model(), "--size", "128x128", "--runs", 2, "--stage", "evaluation", "--dump", tmp / "d", "--json"),
                 0).json()
    equal((one["stage"], len(one["stages"]["evaluation"]["runs"])), ("evaluation", 2), "one stage")
    check("product" not in one, "ceilings were measured for one stage")
    check(list((tmp / "d").glob("*.safetensors")), "no outputs were dumped")
    refused(duet("bench", model(), "--stage", "nothing"), "stage")
    refused(duet("bench", model(), "--runs", "0"), "runs")
    refused(duet("bench", model(), "--size", "131x128"), "size")
