// What is wrong with a checkpoint, as data: one finding for each kind of fault and place, with a count.
//
// Made by the readers of this folder. Loading throws the first error; `sluice check` collects them all (FindingList).
// A TensorError is an Error that still knows which tensor it is about. A list belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace sluice::ckpt {

enum class Severity : std::uint8_t {
  info,     // worth knowing
  warning,  // runs, perhaps not as meant
  error,    // loading refuses it
};
std::string_view severity_name(Severity severity);

enum class FindingKind : std::uint8_t { missing, shape, dtype, scale, conflict, unused, unsupported, other };
std::string_view finding_kind_name(FindingKind kind);

struct Finding {
  Severity severity = Severity::info;
  FindingKind kind = FindingKind::other;
  std::string message;  // of the first case
  std::string tensor;   // of the first case; empty when it is about no tensor
  std::string file;     // as `tensor`
  std::int64_t count = 1;
  std::vector<std::string> tensors;  // of the first few cases
};

// "what; expected ...; hint", as fail() writes it; empty parts are left out.
std::string error_text(const std::string& what, const std::string& expected, const std::string& hint);

class TensorError : public Error {
 public:
  TensorError(ErrorCode code, FindingKind kind, std::string file, std::string tensor, const std::string& message)
      : Error(code, message), kind_(kind), file_(std::move(file)), tensor_(std::move(tensor)) {}
  FindingKind kind() const { return kind_; }
  const std::string& file() const { return file_; }
  const std::string& tensor() const { return tensor_; }

 private:
  FindingKind kind_;
  std::string file_;
  std::string tensor_;
};

class FindingList {
 public:
  // Merged with an earlier one of the same severity and kind whose tensor differs in numbers only.
  void add(Finding finding);
  // The error as a finding of severity error.
  void add(const Error& error);

  const std::vector<Finding>& all() const { return findings_; }

 private:
  std::vector<Finding> findings_;
  std::map<std::string, std::size_t> by_place_;
};

}  // namespace sluice::ckpt
