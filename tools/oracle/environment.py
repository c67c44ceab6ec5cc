"""What a fixture has to say about the place it was made in: versions, and the vector level of the processor.

torch picks its kernels at run time, and `torch.randn`, `linspace` and every product differ in last bits between
levels, so a fixture without the level cannot be judged.
"""

import importlib.metadata

PACKAGES = ("torch", "diffusers", "transformers", "tokenizers", "numpy", "pillow", "safetensors")


def describe():
    import torch

    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"versions": versions, "vector_level": torch.backends.cpu.get_cpu_capability()}


def require_vectors():
    """The goldens are those of the AVX2 form, which AVX-512 processors share bit for bit."""
    import torch

    level = torch.backends.cpu.get_cpu_capability()
    if level not in ("AVX2", "AVX512"):
        raise SystemExit(f"error: fixtures need a processor with AVX2 (torch reports {level})")
