"""The table of refusals: every limit just outside, in the stated form, with the stated code, and nothing on disk."""
from kit import check, config, duet, equal, files_under, model, note_times, refused, test

LONG = "x" * 7001
MAX = 2**63 - 1

# (options, field, code): rules that need no model
PLAIN = [
    (["--prompt", ""], "prompt", "missing_required_parameter"),
    (["--prompt", " \t\n\u3000"], "prompt", "missing_required_parameter"),
    (["--prompt", LONG], "prompt", "string_above_max_length"),
    (["--prompt", "\U0001f3ac" * 7001], "prompt", "string_above_max_length"),
    (["--prompt", b"caf\xe9"], "prompt", "invalid_encoding"),
    (["--prompt", b"\xed\xa0\x80"], "prompt", "invalid_encoding"),
    (["--prompt", b"\xc0\xaf"], "prompt", "invalid_encoding"),
    (["--task", "v2v"], "task", "invalid_value"),
    (["--seconds", "3.99"], "seconds", "out_of_range"),
    (["--seconds", "15.01"], "seconds", "out_of_range"),
    (["--seconds", "0"], "seconds", "out_of_range"),
    (["--seconds", "-4"], "seconds", "out_of_range"),
    (["--seconds", "nan"], "seconds", "invalid_type"),
    (["--seconds", "five"], "seconds", "invalid_type"),
    (["--num-frames", "95"], "num_frames", "out_of_range"),
    (["--num-frames", "363"], "num_frames", "out_of_range"),
    (["--num-frames", "0"], "num_frames", "out_of_range"),
    (["--num-frames", "99999999999999999999"], "num_frames", "out_of_range"),
    (["--num-frames", "96.0"], "num_frames", "invalid_type"),
    (["--num-frames", "0x60"], "num_frames", "invalid_type"),
    (["--num-frames", "21", "--any-length"], "num_frames", "out_of_range"),
    (["--num-frames", "363", "--any-length"], "num_frames", "out_of_range"),
    (["--seconds", "4", "--num-frames", "96"], "num_frames", "conflicting_parameters"),
    (["--seconds", "5", "--num-frames", "124"], "num_frames", "conflicting_parameters"),
    (["--width", "512"], "height", "missing_required_parameter"),
    (["--height", "512"], "width", "missing_required_parameter"),
    (["--width", "0", "--height", "512"], "width", "invalid_value"),
    (["--width", "-512", "--height", "512"], "width", "invalid_value"),
    (["--width", "2080", "--height", "512"], "width", "invalid_value"),
    (["--width", "512", "--height", "2080"], "height", "invalid_value"),
    (["--width", "1952", "--height", "1952"], "width", "invalid_value"),
    (["--width", "512", "--height", "512", "--size", "512x512"], "size", "conflicting_parameters"),
    (["--size", "512x512", "--short-edge", "512"], "short_edge", "conflicting_parameters"),
    (["--size", "512x512", "--aspect-ratio", "1:1"], "aspect_ratio", "conflicting_parameters"),
    (["--width", "512", "--height", "512", "--aspect-ratio", "1:1"], "aspect_ratio", "conflicting_parameters"),
    (["--size", "512"], "size", "invalid_value"),
    (["--size", "512x"], "size", "invalid_value"),
    (["--size", "512 x 512"], "size", "invalid_value"),
    (["--size", "2080x512"], "size", "invalid_value"),
    (["--size", "1952x1952"], "size", "invalid_value"),
    (["--short-edge", "1441"], "short_edge", "out_of_range"),
    (["--short-edge", "0"], "short_edge", "out_of_range"),
    (["--short-edge", "-1"], "short_edge", "out_of_range"),
    (["--aspect-ratio", "3:2"], "aspect_ratio", "invalid_value"),
    (["--aspect-ratio", "wide"], "aspect_ratio", "invalid_value"),
    (["--num-inference-steps", "1"], "num_inference_steps", "out_of_range"),
    (["--num-inference-steps", "201"], "num_inference_steps", "out_of_range"),
    (["--num-inference-steps", "0", "--steps-unit", "evaluations"], "num_inference_steps", "out_of_range"),
    (["--num-inference-steps", "201", "--steps-unit", "evaluations"], "num_inference_steps", "out_of_range"),
    (["--steps-unit", "steps"], "steps_unit", "invalid_value"),
    (["--sigmas", "1,0.5,0"], "audio_sigmas", "missing_required_parameter"),
    (["--audio-sigmas", "1,0.5,0"], "sigmas", "missing_required_parameter"),
    (["--sigmas", "1,0.5,0", "--audio-sigmas", "1,0"], "audio_sigmas", "invalid_value"),
    (["--sigmas", "1,0.5,0", "--audio-sigmas", "1,0.5,0", "--flow-shift", "12"], "flow_shift", "conflicting_parameters"),
    (["--sigmas", "1,0.5,0", "--audio-sigmas", "1,0.5,0", "--audio-flow-shift", "3"], "audio_flow_shift",
     "conflicting_parameters"),
    (["--sigmas", "1,0.5,0", "--audio-sigmas", "1,0.5,0", "--num-inference-steps", "3"], None, "conflicting_parameters"),
    (["--base-schedule", "1,0.5,0", "--num-inference-steps", "3"], None, "conflicting_parameters"),
    (["--base-schedule", "1,0.5,0", "--sigmas", "1,0.5,0"], None, "conflicting_parameters"),
    (["--base-schedule", "1,0.5,0.1"], "base_schedule", "invalid_value"),
    (["--base-schedule", "1,1,0"], "base_schedule", "invalid_value"),
    (["--base-schedule", "0.5,0.6,0"], "base_schedule", "invalid_value"),
    (["--base-schedule", "2,1,0"], "base_schedule", "invalid_value"),
    (["--base-schedule", "0"], "base_schedule", "out_of_range"),
    (["--base-schedule", "1,x,0"], "base_schedule", "invalid_type"),
    (["--flow-shift", "0"], "flow_shift", "out_of_range"),
    (["--flow-shift", "-12"], "flow_shift", "out_of_range"),
    (["--flow-shift", "inf"], "flow_shift", "invalid_type"),
    (["--flow-shift", "1e999"], "flow_shift", "out_of_range"),
    (["--audio-flow-shift", "0"], "audio_flow_shift", "out_of_range"),
    (["--seed", "-2"], "seed", "out_of_range"),
    (["--seed", str(MAX + 1)], "seed", "out_of_range"),
    (["--seed", str(MAX), "--num-outputs-per-prompt", "2"], "seed", "out_of_range"),
    (["--seed", "1.5"], "seed", "invalid_type"),
    (["--seed", ""], "seed", "invalid_type"),
    (["--num-outputs-per-prompt", "0"], "num_outputs_per_prompt", "out_of_range"),
    (["--num-outputs-per-prompt", "11"], "num_outputs_per_prompt", "out_of_range"),
    (["--num-outputs", "2", "--num-outputs-per-prompt", "2"], "num_outputs_per_prompt", "conflicting_parameters"),
    (["--quality", "high"], "quality", "quality_not_available"),
    (["--quality", "best"], "quality", "invalid_value"),
    (["--noise", "torch"], "noise", "invalid_value"),
    (["--dtype", "bf16"], "dtype", "unsupported_parameter"),
    (["--dtype", "int8"], "dtype", "invalid_value"),
    (["--output-quality", "best"], "output_quality", "invalid_value"),
    (["--output-compression", "-1"], "output_compression", "out_of_range"),
    (["--output-compression", "101"], "output_compression", "out_of_range"),
    (["--threads", "0"], "threads", "out_of_range"),
    (["--threads", "-1"], "threads", "out_of_range"),
    (["--threads", "2000"], "threads", "out_of_range"),
    (["--backend", "gpu"], "backend", "invalid_value"),
    (["--layout", "gguf"], "layout", "invalid_value"),
]

OUTPUTS = ["clip.avi", "clip", "clip.mp4.tmp", "clip.MP4", ".mp4", "clip.webm"]


def line(tmp, options, *more):
    """A whole command line: the defaults that `options` does not give, then `options`."""
    base = []
    if "--prompt" not in options:
        base += ["--prompt", "a lamp"]
    return ["generate", "--model", model(), "--output", tmp / "clip.mp4", *base, *options, *more]


@test
def every_limit_just_outside(tmp):
    model()
    seconds = []
    for options, field, code in PLAIN:
        run = duet(*line(tmp, options))
        seconds.append(run.seconds)
        refused(run, field)
        refused(duet(*line(tmp, options, "--json")), field, code)
    equal(files_under(tmp), [], "files left by refused requests")
    note_times("refusals that need no model", seconds)


@test
def rules_that_need_the_model(tmp):
    path = model()
    c = config(path)
    multiple, tokens = c["canvas_multiple"], ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
    cases = [(["--width", 512 + multiple // 2, "--height", 512], "width", "invalid_value"),
             (["--width", 512, "--height", 512 - 1], "height", "invalid_value"),
             (["--size", f"512x{512 + multiple // 2}"], "size", "invalid_value"),
             (["--short-edge", min(256, c["canvas_short_edge"]) - 1], "short_edge", "out_of_range"),
             (["--task", "ref2va"], "task", "task_not_served"),
             (["--task", "fl2va"], "task", "unsupported_parameter"),
             (["--flow-shift", "1e30"], "flow_shift", "invalid_value")]
    cases += [(["--prompt", f"a {token} b"], "prompt", "invalid_value") for token in tokens]
    seconds = []
    for options, field, code in cases:
        run = duet(*line(tmp, options))
        seconds.append(run.seconds)
        text = refused(run, field)
        if field == "prompt":
            check(options[1].split()[1] in text, f"the token is not named: {text}")
        refused(duet(*line(tmp, options, "--json")), field, code)
    equal(files_under(tmp), [], "files left by refused requests")
    note_times("refusals that need the model's configuration", seconds)


@test
def t2va_on_a_reference_partition(tmp):
    path = model(partition="ref2va")
    refused(duet("generate", "--model", path, "--prompt", "x", "--output", tmp / "a.mp4"), "task")
    refused(duet("plan", "--model", path, "--prompt", "x", "--json"), "task", "task_not_served")


@test
def endings_of_outputs(tmp):
    for name in OUTPUTS:
        refused(duet("generate", "--model", model(), "--prompt", "x", "--output", tmp / name, "--json"), "output",
                "invalid_value")
    equal(files_under(tmp), [], "files left")


@test
def missing_options(tmp):
    refused(duet("generate", "--prompt", "x", "--output", tmp / "a.mp4"), "model")
    refused(duet("generate", "--model", model(), "--prompt", "x"), "output")
    refused(duet("generate", "--model", model(), "--output", tmp / "a.mp4", "--json"), "prompt",
            "missing_required_parameter")
    refused(duet("plan"), "model")
    refused(duet("info"), "model")
    refused(duet("decode", "--model", model(), "--output", tmp / "a.mp4"), "latents")
    refused(duet("synth"), "out")
    refused(duet("generate", model(), "--model", model(), "--prompt", "x", "--output", tmp / "a.mp4"), "model")


@test
def options_that_no_request_judges(tmp):
    """Bounds and words of single commands, refused with what was typed."""
    for words, field, got in [(["plan", "--text-rows", "0"], "text_rows", "0"), (["plan", "--text-rows", "42001"], "text_rows", "42001"),
                              (["plan", "--threads", "0"], "threads", "0"), (["bench", "--threads", "0"], "threads", "0"),
                              (["bench", "--threads", "1025"], "threads", "1025"), (["bench", "--runs", "101"], "runs", "101"),
                              (["bench", "--text-rows", "0"], "text_rows", "0"), (["bench", "--backend", "gpu"], "backend", "gpu"),
                              (["bench", "--text-rows", "42001"], "text_rows", "42001"),
                              (["bench", "--cpu-level", "sse"], "cpu_level", "sse"), (["bench", "--layout", "gguf"], "layout", "gguf"),
                              (["bench", "--stage", "all "], "stage", "all ")]:
        text = refused(duet(*words, "--model", model()), field)
        check(f"(got {got};" in text, f"not the value that was given: {text}")
    for name in (".", ".."):
        check("nearest: " + name + "/)" in refused(duet("plan", model(), "--prompt", "x", "--output", name), "output"),
              "a folder's name is taken for a file's")


@test
def nearest_is_accepted(tmp):
    """Following the suggestion leads to a request that is accepted."""
    for options, field in [(["--num-frames", "95"], "num_frames"), (["--seconds", "15.5"], "seconds"),
                           (["--size", "2080x512"], "size"), (["--size", "1952x1952"], "size"),
                           (["--aspect-ratio", "3:2"], "aspect_ratio"), (["--num-inference-steps", "1"], "num_inference_steps"),
                           (["--output-compression", "101"], "output_compression")]:
        text = refused(duet("plan", "--model", model(), "--prompt", "x", *options), field)
        nearest = text.rsplit("nearest: ", 1)[1].rstrip(")")
        again = duet("plan", "--model", model(), "--prompt", "x", options[0], nearest)
        check(again.code == 0, f"{text}, but: {again}")
