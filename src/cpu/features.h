// Which instruction sets this processor and its operating system offer, and which one the kernels of src/cpu use.
//
// Called once when the CPU backend or runner is made; the answer is passed on as a value. Pure queries: thread-safe.
// Every instruction set has its own kernels, and results may differ in the last bits between them, never within one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::cpu {

// Ascending: each one includes those before it.
enum class Isa : std::uint8_t { scalar, avx2, avx512, avx512_bf16 };

struct Features {
  bool avx2 = false;         // with FMA and F16C, and ymm state saved by the system
  bool avx512 = false;       // F, BW, DQ, VL, and zmm state saved by the system
  bool avx512_bf16 = false;  // with VBMI
  std::string processor;     // brand string, "" when there is none
};

Features detect_features();

// The widest set at or below `limit` that `features` allow. `limit` is what a user asked for (SLUICE_ISA).
Isa choose_isa(const Features& features, Isa limit = Isa::avx512_bf16);
bool supports(const Features& features, Isa isa);

std::string_view isa_name(Isa isa);  // "scalar", "avx2", "avx512", "avx512-bf16"
std::optional<Isa> isa_from_name(std::string_view name);

// For --version and doctor: "AMD EPYC ...; avx2 avx512 avx512-bf16; in use: avx512-bf16".
std::string describe(const Features& features, Isa in_use);

}  // namespace sluice::cpu
