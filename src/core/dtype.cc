#include "core/dtype.h"

#include <array>

namespace sluice {
namespace {

struct DTypeInfo {
  std::string_view name;
  int bits;
};

// Indexed by DType; the order is that of the enum.
constexpr std::array<DTypeInfo, 17> kInfo = {{{"f64", 64},
                                              {"f32", 32},
                                              {"f16", 16},
                                              {"bf16", 16},
                                              {"e4m3", 8},
                                              {"e5m2", 8},
                                              {"e8m0", 8},
                                              {"e2m1", 4},
                                              {"u8", 8},
                                              {"i8", 8},
                                              {"i16", 16},
                                              {"u16", 16},
                                              {"i32", 32},
                                              {"u32", 32},
                                              {"i64", 64},
                                              {"u64", 64},
                                              {"bool", 8}}};

}  // namespace

int dtype_bits(DType type) { return kInfo[static_cast<std::size_t>(type)].bits; }

std::int64_t dtype_bytes(DType type, std::int64_t elements) {
  return type == DType::e2m1 ? (elements + 1) / 2 : elements * (dtype_bits(type) / 8);
}

std::string_view dtype_name(DType type) { return kInfo[static_cast<std::size_t>(type)].name; }

}  // namespace sluice
