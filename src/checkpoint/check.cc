#include "checkpoint/check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/messages.h"
#include "checkpoint/quant_config.h"

namespace sluice::ckpt {
namespace {

// How a type spells NaN and infinity: with all exponent bits set and the mantissa non-zero or zero; in e4m3 only all
// bits set is NaN, in e8m0 (which has no sign) likewise.
struct Encoding {
  std::uint64_t exponent = 0;  // mask
  std::uint64_t mantissa = 0;  // mask; 0 = no such values
  bool only_all_ones = false;
};

Encoding encoding_of(DType type) {
  switch (type) {
    case DType::f64:
      return {0x7FF0000000000000u, 0x000FFFFFFFFFFFFFu};
    case DType::f32:
      return {0x7F800000u, 0x007FFFFFu};
    case DType::f16:
      return {0x7C00u, 0x03FFu};
    case DType::bf16:
      return {0x7F80u, 0x007Fu};
    case DType::e5m2:
      return {0x7Cu, 0x03u};
    case DType::e4m3:
      return {0x78u, 0x07u, true};
    case DType::e8m0:
      return {0xF0u, 0x0Fu, true};
    default:
      return {};
  }
}

// Elements may lie at any byte, hence the copy.
template <class Unsigned>
NonFiniteCount scan(const TensorEntry& tensor, const Encoding& encoding) {
  NonFiniteCount out;
  const auto count = static_cast<std::int64_t>(tensor.bytes / sizeof(Unsigned));
  for (std::int64_t i = 0; i < count; ++i) {
    Unsigned bits;
    std::memcpy(&bits, tensor.data + static_cast<std::size_t>(i) * sizeof(Unsigned), sizeof(Unsigned));
    if ((bits & encoding.exponent) != encoding.exponent) continue;
    const std::uint64_t mantissa = bits & encoding.mantissa;
    if (encoding.only_all_ones && mantissa != encoding.mantissa) continue;
    if (out.first < 0) out.first = i;
    ++(mantissa != 0 ? out.nan : out.infinite);
  }
  return out;
}

// What is asked of a source reaches no weight, so that a fault of a layer does not hide the next one.
void report_unused(const WeightSource& source, const Checkpoint& checkpoint, FindingList& findings) {
  for (const std::string& name : source.unused()) {
    const TensorEntry* tensor = checkpoint.find(name);
    findings.add({Severity::warning,
                  FindingKind::unused,
                  "nothing in the model uses it",
                  name,
                  tensor == nullptr ? "" : checkpoint.file_of(*tensor),
                  1,
                  {}});
  }
}

void ask_all(const Scheme& scheme, const Checkpoint& checkpoint, NameMap names, const CheckOptions& options,
             FindingList& findings, CheckReport& report, FunctionRef<void(WeightSource&)> ask) {
  SchemeOptions how;
  how.scales = options.scales;
  how.read_ahead = false;
  how.block_scales = options.block_scales;
  how.findings = &findings;
  const std::unique_ptr<WeightSource> source = scheme.open(checkpoint, std::move(names), how);
  try {
    ask(*source);
  } catch (const Error& error) {
    findings.add(error);
  }
  report.formats = source->formats();
  for (const Finding& oddity : source->oddities()) findings.add(oddity);
  report_unused(*source, checkpoint, findings);
}

void scan_weights(const Checkpoint& checkpoint, FindingList& findings) {
  for (const TensorEntry* tensor : checkpoint.tensors()) {
    const NonFiniteCount bad = count_non_finite(*tensor);
    if (!bad) continue;
    const std::string& file = checkpoint.file_of(*tensor);
    findings.add({Severity::error,
                  FindingKind::other,
                  fmt::format("{}: tensor {} holds {} NaN and {} infinite values, the first at element {}", file,
                              quote(tensor->name), bad.nan, bad.infinite, bad.first),
                  tensor->name,
                  file,
                  1,
                  {tensor->name}});
  }
}

}  // namespace

std::int64_t CheckReport::count(Severity severity) const {
  std::int64_t sum = 0;
  for (const Finding& finding : findings) sum += finding.severity == severity ? finding.count : 0;
  return sum;
}

CheckReport check_checkpoint(const Checkpoint& checkpoint, const std::vector<Scheme>& schemes, NameMap names,
                             const CheckOptions& options, FunctionRef<void(WeightSource&)> ask) {
  CheckReport report;
  report.tensors = static_cast<std::int64_t>(checkpoint.tensors().size());
  report.bytes = checkpoint.tensor_bytes();
  FindingList findings;
  for (const std::string& note : checkpoint.notes()) {
    findings.add({Severity::warning, FindingKind::other, note, "", "", 1, {}});
  }
  try {
    report.description = QuantConfig::read(checkpoint).description();
    const Scheme& scheme = find_scheme(schemes, checkpoint);
    report.scheme = scheme.name;
    ask_all(scheme, checkpoint, std::move(names), options, findings, report, ask);
  } catch (const Error& error) {
    findings.add(error);
  }
  if (options.weights) scan_weights(checkpoint, findings);
  report.findings = findings.all();
  std::stable_sort(report.findings.begin(), report.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return report;
}

NonFiniteCount count_non_finite(const TensorEntry& tensor) {
  const Encoding encoding = encoding_of(tensor.dtype);
  if (encoding.mantissa == 0) return {};
  switch (dtype_bits(tensor.dtype)) {
    case 8:
      return scan<std::uint8_t>(tensor, encoding);
    case 16:
      return scan<std::uint16_t>(tensor, encoding);
    case 32:
      return scan<std::uint32_t>(tensor, encoding);
    default:
      return scan<std::uint64_t>(tensor, encoding);
  }
}

}  // namespace sluice::ckpt
