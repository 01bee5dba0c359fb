// Files in a temporary folder and messages of errors, for the checkpoint tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/error.h"

namespace sluice::ckpt {

// An empty folder that is removed with its content.
class TempFolder {
 public:
  TempFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("sluice-test-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::remove_all(path_);  // of a process that was killed, whose number came again
    std::filesystem::create_directories(path_);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(path_); }

  std::string path() const { return path_.string(); }
  std::string file(std::string_view name) const { return (path_ / name).string(); }
  std::string write(std::string_view name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

// The bytes of a safetensors file with this header text and data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return out.append(header).append(data);
}

// The message of the Error that `f` throws, which must have this code.
template <class F>
std::string message_of(F f, ErrorCode code = ErrorCode::bad_input) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "no error";
}

// Expects `part` in `text`.
inline void expect_contains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" lacks \"" << part << "\"";
}

// Resident pages of mapped files of this process, in KiB; a file on tmpfs counts as shared memory.
inline std::int64_t resident_file_kb() {
  std::ifstream status("/proc/self/status");
  std::int64_t kb = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssFile:", 0) == 0) kb += std::stoll(line.substr(8));
    if (line.rfind("RssShmem:", 0) == 0) kb += std::stoll(line.substr(9));
  }
  return kb;
}

}  // namespace sluice::ckpt
