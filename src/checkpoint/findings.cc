#include "checkpoint/findings.h"

#include <iterator>

namespace sluice::ckpt {
namespace {

constexpr std::size_t kExamples = 5;

// "layers.#.experts.#.gate_proj.weight": what cases of one fault have in common.
std::string without_numbers(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) out += c;
    if (digit && (out.empty() || out.back() != '#')) out += '#';
  }
  return out;
}

}  // namespace

std::string_view severity_name(Severity severity) {
  constexpr std::string_view kNames[] = {"info", "warning", "error"};
  return kNames[static_cast<std::size_t>(severity)];
}

std::string_view finding_kind_name(FindingKind kind) {
  constexpr std::string_view kNames[] = {"missing",  "shape",  "dtype",       "scale",
                                         "conflict", "unused", "unsupported", "other"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(FindingKind::other) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

std::string error_text(const std::string& what, const std::string& expected, const std::string& hint) {
  std::string text = what;
  if (!expected.empty()) text += "; expected " + expected;
  if (!hint.empty()) text += "; " + hint;
  return text;
}

void FindingList::add(Finding finding) {
  // Without a tensor only the text tells cases apart.
  std::string place = without_numbers(finding.tensor.empty() ? finding.message : finding.tensor);
  place += static_cast<char>('0' + static_cast<int>(finding.severity));
  place += static_cast<char>('0' + static_cast<int>(finding.kind));
  const auto [at, is_new] = by_place_.emplace(std::move(place), findings_.size());
  if (is_new) {
    if (!finding.tensor.empty() && finding.tensors.empty()) finding.tensors.push_back(finding.tensor);
    findings_.push_back(std::move(finding));
    return;
  }
  Finding& known = findings_[at->second];
  known.count += finding.count;
  if (!finding.tensor.empty() && known.tensors.size() < kExamples) known.tensors.push_back(std::move(finding.tensor));
}

void FindingList::add(const Error& error) {
  Finding finding{Severity::error, FindingKind::other, error.what(), "", "", 1, {}};
  if (error.code() == ErrorCode::unsupported) finding.kind = FindingKind::unsupported;
  if (const auto* about = dynamic_cast<const TensorError*>(&error)) {
    finding.kind = about->kind();
    finding.tensor = about->tensor();
    finding.file = about->file();
  }
  add(std::move(finding));
}

}  // namespace sluice::ckpt
