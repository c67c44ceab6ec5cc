"""Read and write safetensors with numpy alone, so that comparing needs no package from outside a distribution.

A file is an 8-byte little-endian header length, a JSON header and the data. The writer sorts the names, aligns the
data to 8 bytes and writes no time or version, so equal content gives equal bytes.
"""

import json
import os

import numpy as np

DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "U8": "u1",
    "BOOL": "?",
}
NAMES = {np.dtype(code): name for name, code in DTYPES.items()}


def read(path):
    """(tensors, metadata) of one file. bfloat16 is widened to float32, which is exact."""
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(length))
        data = f.read()
    metadata = header.pop("__metadata__", {})
    return {name: _decode(data, entry) for name, entry in header.items()}, metadata


def _decode(data, entry):
    begin, end = entry["data_offsets"]
    raw = data[begin:end]
    if entry["dtype"] == "BF16":
        flat = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        flat = np.frombuffer(raw, DTYPES[entry["dtype"]])
    return flat.reshape(entry["shape"])


def write(path, tensors, metadata=None):
    """Write named arrays; torch tensors are accepted too. Metadata values become strings."""
    arrays = {name: _plain(tensors[name]) for name in sorted(tensors)}
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = {
            str(k): v if isinstance(v, str) else json.dumps(v) for k, v in metadata.items()
        }
    for name, array in arrays.items():
        end = offset + array.nbytes
        header[name] = {
            "dtype": NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            f.write(array.tobytes())


def _plain(value):
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    # ascontiguousarray would turn a scalar into a vector
    array = np.asarray(value)
    return array if array.ndim == 0 else np.ascontiguousarray(array)


def read_directory(path):
    """All tensors of all files of a tap directory, by name. A name may stand in one file only."""
    merged = {}
    for file in sorted(os.listdir(path)):
        if file.endswith(".safetensors"):
            tensors, _ = read(os.path.join(path, file))
            for name, value in tensors.items():
                if name in merged:
                    raise ValueError(f"{path}: {name} stands in two files")
                merged[name] = value
    return merged
