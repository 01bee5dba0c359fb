"""src/checkpoint against the safetensors package: each reads what the other wrote, and damaged files are refused."""

import json
import struct

import ml_dtypes
import numpy as np
import pytest
from safetensors import TensorSpec, deserialize, safe_open, serialize_file
from safetensors.numpy import save_file

import checkpoint_probe as probe

NUMPY_TYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "I8": np.int8, "I16": np.int16, "I32": np.int32,
    "I64": np.int64, "U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64, "BOOL": np.bool_,
}
# What numpy has no type for: ml-dtypes' types of the same bits.
NUMPY_TYPES |= {
    "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}
SHAPES = [(), (1,), (0,), (3,), (2, 3), (0, 5), (4, 1, 2), (2, 2, 2, 2), (129,)]


def random_array(rng, dtype, shape):
    dtype = np.dtype(dtype)
    raw = rng.integers(0, 2 if dtype == np.bool_ else 256, int(np.prod(shape)) * dtype.itemsize, dtype=np.uint8)
    return np.frombuffer(raw.tobytes(), dtype).reshape(shape)


def test_our_reader_reads_the_packages_files(tmp_path):
    rng = np.random.default_rng(1)
    want = {f"{name}.{i}": (name, random_array(rng, dtype, shape))
            for name, dtype in NUMPY_TYPES.items() for i, shape in enumerate(SHAPES)}
    path = tmp_path / "a.safetensors"
    save_file({k: v for k, (_, v) in want.items()}, path, metadata={"format": "np", "Ünï": "\n\"\\ 中"})
    found, metadata = probe.tensors(path)
    assert metadata == {"format": "np", "Ünï": "\n\"\\ 中"}
    assert found.keys() == want.keys()
    for key, (name, array) in want.items():
        assert found[key] == (name, list(array.shape), array.tobytes()), key


def test_four_bit_tensors_have_shapes_in_elements(tmp_path):
    codes = np.arange(6, dtype=np.uint8).reshape(2, 3)
    packed = TensorSpec(dtype="float4_e2m1fn_x2", shape=codes.shape, data_ptr=codes.ctypes.data, data_len=codes.nbytes)
    serialize_file({"a": packed}, str(tmp_path / "in"))
    assert probe.tensors(tmp_path / "in")[0] == {"a": ("F4", [2, 6], codes.tobytes())}
    probe.run_ok("rewrite", tmp_path / "in", tmp_path / "out")
    with safe_open(tmp_path / "out", "np") as f:
        assert f.get_slice("a").get_dtype() == "F4"
        assert f.get_slice("a").get_shape() == [2, 6]


def test_the_package_reads_our_files(tmp_path):
    rng = np.random.default_rng(3)
    arrays = {f"{name}.{i}": random_array(rng, dtype, shape)
              for name, dtype in NUMPY_TYPES.items() for i, shape in enumerate(SHAPES)}
    save_file(arrays, tmp_path / "in.safetensors", metadata={"a": "1", "b": "\u2028 x"})
    probe.run_ok("rewrite", tmp_path / "in.safetensors", tmp_path / "out.safetensors")
    found = {name: (info["dtype"], info["shape"], bytes(info["data"]))
             for name, info in deserialize((tmp_path / "out.safetensors").read_bytes())}
    assert found == {f"{name}.{i}": (name, list(shape), arrays[f"{name}.{i}"].tobytes())
                     for name in NUMPY_TYPES for i, shape in enumerate(SHAPES)}
    with safe_open(tmp_path / "out.safetensors", "np") as f:
        assert f.metadata() == {"a": "1", "b": "\u2028 x"}


def test_our_files_are_aligned(tmp_path):
    arrays = {"odd": np.zeros(3, np.uint8), "wide": np.zeros(3, np.float64), "half": np.zeros(1, np.float16)}
    save_file(arrays, tmp_path / "in")
    probe.run_ok("rewrite", tmp_path / "in", tmp_path / "out")
    raw = (tmp_path / "out").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    assert length % 8 == 0
    for entry in json.loads(raw[8:8 + length]).values():
        assert entry["data_offsets"][0] % (8 if entry["dtype"] == "F64" else 2 if entry["dtype"] == "F16" else 1) == 0


def entry(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def file_bytes(header, data=b"xxxx", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


GOOD = {"a": entry()}
# name: (bytes of the file, words that the message must contain, whether the package refuses it as well)
DAMAGED = {
    "empty file": (b"", ["0 bytes"], True),
    "shorter than the length": (b"\x10\0\0", ["3 bytes"], True),
    "header of 2^63 bytes": (file_bytes(GOOD, length=1 << 63), ["header length", "9223372036854775808"], True),
    "header of 2^64-1 bytes": (file_bytes(GOOD, length=(1 << 64) - 1), ["header length"], True),
    "header above the cap": (file_bytes(GOOD, length=100_000_001), ["header length", "100000000"], True),
    "header beyond the file": (file_bytes(GOOD, length=10_000), ["header length", "truncated"], True),
    "header of no bytes": (file_bytes(b""), ["'{'"], True),
    "truncated data": (file_bytes(GOOD)[:-1], ['tensor "a"', "data_offsets", "within the 3 bytes"], True),
    "truncated inside the header": (file_bytes(GOOD)[:20], ["header length"], True),
    "trailing bytes": (file_bytes(GOOD, b"xxxxx"), ["1 bytes after the last tensor"], True),
    "git lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ["Git LFS", "git lfs pull"], True),
    "not json": (file_bytes(b'{"a":'), ["not valid JSON"], True),
    "array header": (file_bytes(b"[]", b""), ["'{'"], True),
    "invalid utf-8": (file_bytes(b'{"\xff":1}'), ["not valid JSON"], True),
    "nested too deep": (file_bytes(b'{"a":' + b"[" * 1000 + b"]" * 1000 + b"}"), ["nested deeper"], True),
    "entry is a list": (file_bytes({"a": []}), ['tensor "a"', "found array"], False),
    "unknown dtype": (file_bytes({"a": entry("FP4")}), ['tensor "a"', 'dtype: found "FP4"', "BF16"], True),
    "lower-case dtype": (file_bytes({"a": entry("u8")}), ["dtype", '"u8"'], True),
    "dtype is a number": (file_bytes({"a": entry(8)}), ["dtype: found integer"], True),
    "no dtype": (file_bytes({"a": {"shape": [4], "data_offsets": [0, 4]}}), ["dtype: missing"], True),
    "no shape": (file_bytes({"a": {"dtype": "U8", "data_offsets": [0, 4]}}), ["shape: missing"], True),
    "no offsets": (file_bytes({"a": {"dtype": "U8", "shape": [4]}}), ["data_offsets: missing"], True),
    "negative dimension": (file_bytes({"a": entry(shape=(-4,))}), ["shape: found -4"], True),
    "fractional dimension": (file_bytes({"a": entry(shape=(4.0,))}), ["shape: found 4.0"], True),
    "shape overflow": (file_bytes({"a": entry("F32", (1 << 32, 1 << 32))}), ["shape", "overflows"], True),
    "dimension above int64": (file_bytes({"a": entry(shape=(1 << 63,))}), ["does not fit"], True),
    "shape and size differ": (file_bytes({"a": entry("F32", (2,))}), ["span 4 bytes", "8 for F32 [2]"], True),
    "half a byte": (file_bytes({"a": entry("F4", (7,))}), ["ends inside a byte"], True),
    "one offset": (file_bytes({"a": entry(offsets=(0,))}), ["data_offsets: found 1"], True),
    "three offsets": (file_bytes({"a": entry(offsets=(0, 4, 4))}), ["data_offsets: found 3"], True),
    "offsets swapped": (file_bytes({"a": entry(offsets=(4, 0))}), ["begin <= end"], True),
    "negative offset": (file_bytes({"a": entry(offsets=(-4, 0))}), ["data_offsets: found -4"], True),
    "offset beyond the file": (file_bytes({"a": entry(shape=(9,), offsets=(0, 9))}), ["within the 4 bytes"], True),
    "huge offset": (file_bytes({"a": entry(shape=(4,), offsets=((1 << 62), (1 << 62) + 4))}), ["within the 4"], True),
    "hole at the start": (file_bytes({"a": entry(shape=(3,), offsets=(1, 4))}), ["hole", "begin 0"], True),
    "hole": (file_bytes({"a": entry(shape=(1,), offsets=(0, 1)), "b": entry(shape=(2,), offsets=(2, 4))}),
             ['tensor "b"', "hole after tensor \"a\""], True),
    "overlap": (file_bytes({"a": entry(shape=(3,), offsets=(0, 3)), "b": entry(shape=(2,), offsets=(2, 4))}),
                ['tensor "b"', "overlaps tensor \"a\""], True),
    "same bytes twice": (file_bytes({"a": entry(), "b": entry()}), ["overlaps"], True),
    # The package takes the last of two equal keys; which one counts would be a guess.
    "duplicate name": (file_bytes(b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
                                  b'"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}}'), ["duplicate key", '"a"'], False),
    "metadata is no object": (file_bytes({"__metadata__": [1], **GOOD}), ["__metadata__"], True),
    "metadata with numbers": (file_bytes({"__metadata__": {"k": 1}, **GOOD}), ["__metadata__: k", "string"], True),
    "metadata nested": (file_bytes({"__metadata__": {"k": {}}, **GOOD}), ["__metadata__: k", "string"], True),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused(name, tmp_path):
    raw, words, package_refuses = DAMAGED[name]
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(raw)
    message = probe.refusal("tensors", path)
    for word in [str(path), *words]:
        assert word in message
    if package_refuses:
        with pytest.raises(Exception):
            with safe_open(path, "np") as f:
                f.keys()


def test_good_file_of_the_damaged_ones_is_read(tmp_path):
    (tmp_path / "good").write_bytes(file_bytes(GOOD))
    assert probe.tensors(tmp_path / "good")[0] == {"a": ("U8", [4], b"xxxx")}


def test_a_folder_is_no_file(tmp_path):
    assert "is a directory" in probe.refusal("tensors", tmp_path)


def test_every_truncation_and_flipped_byte_is_read_or_refused(tmp_path):
    save_file({"a": np.arange(3, dtype=np.float32), "b": np.zeros((2, 2), np.int8)}, tmp_path / "in", {"k": "v"})
    raw = (tmp_path / "in").read_bytes()
    rng = np.random.default_rng(5)
    damaged = [raw[:n] for n in range(0, len(raw), 7)]
    for at in rng.integers(0, len(raw) - 16, 100):
        damaged.append(raw[:at] + bytes([raw[at] ^ (1 << rng.integers(8))]) + raw[at + 1:])
    path = tmp_path / "damaged"
    for text in damaged:
        path.write_bytes(text)
        code, _, err = probe.run("tensors", path)
        assert code in (0, 3), err
        try:
            with safe_open(path, "np") as f:
                package_names = set(f.keys())
        except Exception:
            package_names = None
        if code == 0:
            assert set(probe.tensors(path)[0]) == package_names
