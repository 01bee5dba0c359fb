#include "cpu/features.h"

#include <cpuid.h>

#include <array>
#include <cstring>

namespace sluice::cpu {
namespace {

struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Zeros when the processor does not have the leaf.
Leaf cpuid(unsigned leaf, unsigned subleaf = 0) {
  Leaf r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

// Register states that the operating system saves on a task switch: bits of XCR0.
constexpr std::uint64_t kYmmState = 0x06;  // xmm, ymm
constexpr std::uint64_t kZmmState = 0xE6;  // xmm, ymm, opmask, upper zmm 0-15, zmm 16-31

std::uint64_t saved_states() {
  constexpr unsigned kOsxsave = 1u << 27;
  if ((cpuid(1).ecx & kOsxsave) == 0) return 0;
  unsigned low = 0;
  unsigned high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

bool all(std::uint64_t value, std::uint64_t bits) { return (value & bits) == bits; }

std::string brand() {
  constexpr unsigned kFirst = 0x80000002u;
  if (static_cast<unsigned>(__get_cpuid_max(0x80000000u, nullptr)) < kFirst + 2) return "";
  std::array<char, 49> text{};
  for (unsigned i = 0; i < 3; ++i) {
    const Leaf leaf = cpuid(kFirst + i);
    const std::array<unsigned, 4> words{leaf.eax, leaf.ebx, leaf.ecx, leaf.edx};
    std::memcpy(text.data() + 16 * i, words.data(), 16);
  }
  const std::string s(text.data());
  const auto first = s.find_first_not_of(' ');
  return first == std::string::npos ? "" : s.substr(first, s.find_last_not_of(' ') - first + 1);
}

struct IsaName {
  Isa isa;
  std::string_view name;
};
constexpr std::array<IsaName, 4> kNames{
    {{Isa::scalar, "scalar"}, {Isa::avx2, "avx2"}, {Isa::avx512, "avx512"}, {Isa::avx512_bf16, "avx512-bf16"}}};

}  // namespace

Features detect_features() {
  const Leaf basic = cpuid(1);
  const Leaf extended = cpuid(7);
  const std::uint64_t states = saved_states();
  constexpr unsigned kFma = 1u << 12;
  constexpr unsigned kAvx = 1u << 28;
  constexpr unsigned kF16c = 1u << 29;
  constexpr unsigned kAvx2 = 1u << 5;
  constexpr unsigned kAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // F, DQ, BW, VL
  constexpr unsigned kVbmi = 1u << 1;
  constexpr unsigned kBf16 = 1u << 5;

  Features f;
  f.avx2 = all(states, kYmmState) && all(basic.ecx, kFma | kAvx | kF16c) && all(extended.ebx, kAvx2);
  f.avx512 = f.avx2 && all(states, kZmmState) && all(extended.ebx, kAvx512);
  f.avx512_bf16 = f.avx512 && extended.eax >= 1 && all(extended.ecx, kVbmi) && all(cpuid(7, 1).eax, kBf16);
  f.processor = brand();
  return f;
}

bool supports(const Features& features, Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return true;
    case Isa::avx2:
      return features.avx2;
    case Isa::avx512:
      return features.avx512;
    case Isa::avx512_bf16:
      return features.avx512_bf16;
  }
  return false;
}

Isa choose_isa(const Features& features, Isa limit) {
  Isa best = Isa::scalar;
  for (const IsaName& n : kNames) {
    if (n.isa <= limit && supports(features, n.isa)) best = n.isa;
  }
  return best;
}

std::string_view isa_name(Isa isa) {
  for (const IsaName& n : kNames) {
    if (n.isa == isa) return n.name;
  }
  return "unknown";
}

std::optional<Isa> isa_from_name(std::string_view name) {
  for (const IsaName& n : kNames) {
    if (n.name == name) return n.isa;
  }
  return std::nullopt;
}

std::string describe(const Features& features, Isa in_use) {
  std::string text = features.processor.empty() ? "unnamed processor" : features.processor;
  text += ";";
  for (const IsaName& n : kNames) {
    if (n.isa != Isa::scalar && supports(features, n.isa)) text += " " + std::string(n.name);
  }
  return text + "; in use: " + std::string(isa_name(in_use));
}

}  // namespace sluice::cpu
