"""The units compiled with wide instructions must not define functions that the linker could merge into other code."""

import os
import pathlib
import re
import subprocess

import pytest

BUILD = pathlib.Path(os.environ["SLUICE_BUILD_DIR"])
UNITS = ["gemm_scalar", "gemm_avx2", "gemm_avx512", "gemm_avx512_bf16"]


def symbols(unit):
    (path,) = BUILD.glob(f"src/cpu/CMakeFiles/sluice_cpu.dir/isa/{unit}.cc.o")
    lines = subprocess.run(["nm", "-C", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    return [line.split(" ", 2)[1:] for line in lines.splitlines()]


@pytest.mark.parametrize("unit", UNITS)
def test_defines_no_weak_symbols(unit):
    weak = [name for kind, name in symbols(unit) if kind in "WwVvuBDCG"]
    assert weak == []


@pytest.mark.parametrize("unit", UNITS)
def test_exports_its_table_only(unit):
    exported = [name for kind, name in symbols(unit) if kind == "T"]
    assert exported == [f"sluice::cpu::{unit}()"]


# Sums that are spilled cost more than half of the speed and are invisible in the source. Kernels of several lanes may
# keep scales and tables on the stack, which is a load now and then; a spilled sum is a load and a store for each product.
@pytest.mark.parametrize(
    "pattern, count, share",
    [
        (r"segment<.*, 12>\(", 4, 0.0),  # bf16, bf16 scaled, f32 x bf16, f32 x f32
        (r" fused<.*Decoder, (true|false), 1, [1-4]>", 12, 0.0),  # fp8, fp8 scaled, mxfp4
        (r" fused<.*Decoder, (true|false), 1, [5-8]>", 16, 0.2),  # and nvfp4
        (r" fused<.*Decoder, (true|false), [23], \d>", 32, 1.0),
        (r" fused_near<.*PlainFp4Decoder, .*Units, 1, \d>", 8, 0.0),
        (r" fused_near<.*PlainFp4Decoder, .*Units, [23], \d>", 10, 0.2),
        (r" fused_near<.*UnitNvfp4Decoder, .*Units, 1, \d>", 4, 0.3),  # factors of a record are kept there on purpose
        (r" fused_near<.*UnitNvfp4Decoder, .*Units, [23], \d>", 8, 1.0),
    ],
)
def test_kernels_keep_their_sums_in_registers(pattern, count, share):
    (path,) = BUILD.glob("src/cpu/CMakeFiles/sluice_cpu.dir/isa/gemm_avx512_bf16.cc.o")
    command = ["objdump", "-dC", "--no-show-raw-insn", path]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {f.lstrip().split("\n", 1)[0]: f for f in text.split("\n\n")}
    kernels = [f for name, f in names.items() if re.search(pattern, name.replace("::fused", ":: fused"))]
    assert len(kernels) == count
    for kernel in kernels:
        lines = [line for line in kernel.split("\n") if "zmm" in line]
        spilled = sum("(%rsp)" in line or "(%rbp)" in line for line in lines)
        assert spilled <= share * sum("vdpbf16ps" in line or "vfmadd" in line for line in lines)
