"""What must hold for the object files of the backend's vector loops, and can't be seen in their source."""

import os
import pathlib
import subprocess

import pytest

OBJECTS = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "src/cpu/CMakeFiles/sluice_cpu.dir/isa"
UNITS = ["scalar", "avx2", "avx512", "avx512_bf16"]


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# A weak function compiled with wide instructions may be the copy that the linker keeps for the whole program.
@pytest.mark.parametrize("unit", UNITS)
def test_nothing_but_the_table_leaves_a_unit(unit):
    lines = output_of("nm", "-C", "--defined-only", OBJECTS / f"ops_{unit}.cc.o").splitlines()
    leaving = [line.split(" ", 2)[2] for line in lines if not line.split(" ", 2)[1].islower()]
    assert leaving == [f"sluice::cpu::ops_kernels_{unit}()"]


@pytest.mark.parametrize("unit", ["scalar", "avx2", "avx512", "avx512_vbmi"])
def test_nothing_but_the_table_leaves_a_unit_of_lines(unit):
    lines = output_of("nm", "-C", "--defined-only", OBJECTS / f"lines_{unit}.cc.o").splitlines()
    leaving = [line.split(" ", 2)[2] for line in lines if not line.split(" ", 2)[1].islower()]
    assert leaving == [f"sluice::cpu::line_kernels_{unit}()"]


# Sums that live on the stack instead of in registers cost half of the speed.
@pytest.mark.parametrize("kernel, count", [("value_block<", 2), ("score_block<", 2)])
def test_register_blocks_keep_their_sums_in_registers(kernel, count):
    text = output_of("objdump", "-dC", "--no-show-raw-insn", OBJECTS / "ops_avx512_bf16.cc.o")
    functions = [f for f in text.split("\n\n") if kernel in f.lstrip().split("\n", 1)[0]]
    largest = [f for f in functions if ", 4, 4>(" in f.lstrip().split("\n", 1)[0]]
    assert len(largest) == count  # bf16 and f32 caches
    for function in largest:
        spilled = [line for line in function.split("\n") if "zmm" in line and ("(%rsp)" in line or "(%rbp)" in line)]
        assert spilled == []
