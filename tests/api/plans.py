"""duet plan: every limit just inside is accepted, and the numbers are those of the specification's tables."""
import hashlib
import json

from kit import check, config, duet, equal, expect, model, test

MAX = 2**63 - 1


def plan(path, *options, prompt="a lamp"):
    words = [] if prompt is None else ["--prompt", prompt]
    return expect(duet("plan", "--model", path, *words, *options, "--json"), 0).json()


@test
def every_limit_just_inside(tmp):
    path = model()
    own = config(path)["canvas_short_edge"]
    for options in [["--prompt", "x"], ["--prompt", "x" * 7000], ["--prompt", "\U0001f3ac" * 7000], ["--prompt", "\u200b"],
                    ["--task", "T2VA"], ["--seconds", "4"], ["--seconds", "15"], ["--seconds", "4.4"],
                    ["--num-frames", "96"], ["--num-frames", "362"], ["--num-frames", "22", "--any-length"],
                    ["--size", "2048x512"], ["--size", "512x2048"], ["--size", "1920x1920"], ["--size", "1280x720"],
                    ["--short-edge", "1440"], ["--short-edge", str(min(256, own))], ["--aspect-ratio", "21:9"],
                    ["--aspect-ratio", "auto"], ["--aspect-ratio", "adaptive"], ["--num-inference-steps", "2"],
                    ["--num-inference-steps", "200"], ["--num-inference-steps", "1", "--steps-unit", "evaluations"],
                    ["--num-inference-steps", "200", "--steps-unit", "evaluations"], ["--seed", "0"], ["--seed", str(MAX)],
                    ["--seed", "-1"], ["--seed", str(MAX - 9), "--num-outputs", "10"], ["--n", "10"],
                    ["--base-schedule", "0.999,0.749,0.5,0.25,0"], ["--sigmas", "1,0.5,0", "--audio-sigmas", "1,0.3,0"],
                    ["--flow-shift", "0.001"], ["--audio-flow-shift", "100"], ["--quality", "lossless"],
                    ["--quality", "extra-high"], ["--noise", "diffusers"], ["--dtype", "f32"], ["--save-output"],
                    ["--output-compression", "0"], ["--output-compression", "100"], ["--output-quality", "maximum"]]:
        words = options if "--prompt" in options else ["--prompt", "a lamp", *options]
        expect(duet("plan", "--model", path, *words), 0)


@test
def frames_follow_the_table(tmp):
    for seconds, frames, latents, audio in [(4, 107, 32, 178), (4.4, 107, 32, 178), (5, 124, 37, 207), (5.2, 141, 42, 235),
                                            (6, 158, 47, 263), (8, 192, 57, 320), (8.7, 209, 62, 348), (10, 243, 72, 405),
                                            (12, 294, 87, 490), (15, 362, 107, 603)]:
        p = plan(model(), "--seconds", seconds)["plan"]
        equal((p["num_frames"], p["video_latents"][1], p["audio_latents"][2]), (frames, latents, audio), f"{seconds} s")


@test
def plan_adds_up(tmp):
    for seed in range(3):
        path = model(seed)
        c = config(path)
        got = plan(path)
        p = got["plan"]
        channels, t, h, w = p["video_latents"]
        equal(channels, c["vvae"]["latent_channels"], "latent channels")
        equal(h * c["vvae"]["space_ratio"], p["height"], "latent height")
        equal(w * c["vvae"]["space_ratio"], p["width"], "latent width")
        rows = h // c["dit"]["patch_h"] * (w // c["dit"]["patch_w"])
        equal(p["rows_per_latent_frame"], rows, "rows per latent frame")
        segments = {s["kind"]: s["rows"] for s in p["segments"]}
        equal(segments["video"], t * rows, "video rows")
        equal(segments["audio"], 2 * p["audio_latents"][2], "audio rows")
        equal(segments["text"], got["request"]["prompt_tokens"], "text rows")
        equal(sum(segments.values()), p["rows"], "rows")
        first = 0
        for s in p["segments"]:
            equal(s["first_row"], first, "first row of a segment")
            first += s["rows"]
        equal(p["evaluations"], 49, "evaluations")
        stages = p["stages"]
        most = max(sum(v for k, v in s.items() if k.endswith("_bytes")) for s in stages.values())
        equal(p["peak_bytes"], p["base_bytes"] + most, "peak")
        check(stages["denoise"]["weights_mapped_bytes"] + stages["denoise"]["weights_copied_bytes"] > 0, "no weights planned")
        check(stages["decode_video"]["flops"] > 0 and stages["denoise"]["flops"] > 0, "no FLOPs planned")


@test
def plan_resolves_everything_it_says(tmp):
    text = "a lamp \u2014 naïve\n"
    got = plan(model(), "--seed", "-1", "--num-frames", "100", prompt=text)["request"]
    equal(got["prompt_sha256"], hashlib.sha256(text.encode()).hexdigest(), "prompt hash")
    equal(got["num_frames"], 107, "frames")
    check(0 <= got["seed"] <= MAX, "seed was not drawn")
    equal((len(got["sigmas"]), got["sigmas"][0], got["sigmas"][-1]), (50, 1.0, 0.0), "sigmas")
    short = plan(model(), "--num-frames", "22", "--any-length")["request"]
    check(any("4 to 15" in w for w in short["warnings"]), f"no warning for a short clip: {short['warnings']}")
    habit = plan(model(), "--size", "1280x720")["request"]
    equal((habit["width"], habit["height"]), (1344, 768), "1280x720")
    check(habit["warnings"], "no warning for 1280x720")


@test
def prompt_files_are_verbatim_less_one_newline(tmp):
    for content, kept in [(b"one\n", b"one"), (b"one\n\n", b"one\n"), (b"  one  ", b"  one  "), (b"one\r\n", b"one"),
                          (b"a\x00b\n", b"a\x00b")]:
        (tmp / "prompt.txt").write_bytes(content)
        got = expect(duet("plan", "--model", model(), "--prompt-file", tmp / "prompt.txt", "--json"), 0).json()["request"]
        equal(got["prompt_sha256"], hashlib.sha256(kept).hexdigest(), f"prompt of {content!r}")
    (tmp / "empty.txt").write_bytes(b"\n")
    equal(duet("plan", "--model", model(), "--prompt-file", tmp / "empty.txt").code, 2, "a file with one newline")
    equal(duet("plan", "--model", model(), "--prompt-file", tmp / "absent.txt").code, 2, "an absent file")
    equal(duet("plan", "--model", model(), "--prompt-file", tmp).code, 2, "a folder")


@test
def plan_without_a_prompt_says_that_it_assumes(tmp):
    got = plan(model(), prompt=None)
    equal((got["request"]["prompt_tokens"], got["request"]["prompt_tokens_assumed"]), (256, True), "assumed rows")
    got = plan(model(), "--text-rows", 1000, prompt=None)
    equal(got["plan"]["segments"][0]["rows"], 1000, "--text-rows")


@test
def plan_for_people(tmp):
    text = expect(duet("plan", "--model", model(), "--prompt", "x"), 0).out
    for word in ["107 frames", "49 evaluations", "denoise", "decode_video", "peak"]:
        check(word in text, f"{word!r} missing from\n{text}")


@test
def layouts_plan_alike(tmp):
    a, b = plan(model(1)), plan(model(1, "diffusers"))
    drop = ("base_bytes", "peak_bytes")
    for p in (a["plan"], b["plan"]):
        for key in drop:
            p.pop(key)
        for stage in p["stages"].values():
            stage.pop("weights_mapped_bytes"), stage.pop("weights_copied_bytes")
    equal(json.dumps(a, sort_keys=True), json.dumps(b, sort_keys=True), "plan of two layouts")
