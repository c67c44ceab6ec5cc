"""Progress as a terminal sees it: one live line, colours only where wanted."""
import os
import pty
import subprocess

import kit
from kit import check, equal, model, quick, test


def on_terminal(tmp, name, **env):
    """Standard error of a run whose standard error is a terminal."""
    keeper, terminal = pty.openpty()
    words = ["generate", *quick(model()), "--prompt", "a lamp", "--output", tmp / name]
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    process = subprocess.Popen([kit.BINARY, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=terminal, env={**environment, "TERM": "xterm", **env})
    os.close(terminal)
    seen = b""
    while True:
        try:
            piece = os.read(keeper, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        seen += piece
    os.close(keeper)
    equal(process.wait(), 0, "exit code")
    return seen.decode()


@test
def live_line_on_a_terminal(tmp):
    seen = on_terminal(tmp, "a.mp4")
    check("\r\033[K" in seen, f"no live line: {seen!r}")
    check("denoise 1/2" in seen and "left" in seen, f"no evaluation or time left: {seen!r}")
    check("\033[36m" in seen, f"no colour: {seen!r}")


@test
def no_color_and_dumb_terminals(tmp):
    plain = on_terminal(tmp, "a.mp4", NO_COLOR="1")
    check("\r\033[K" in plain and "\033[36m" not in plain and "\033[0m" not in plain, f"NO_COLOR: {plain!r}")
    dumb = on_terminal(tmp, "b.mp4", TERM="dumb")
    check("\033" not in dumb and "denoise" in dumb, f"TERM=dumb: {dumb!r}")
