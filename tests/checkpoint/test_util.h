// Files in a temporary folder and messages of errors, for the checkpoint tests.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
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

// Asks the page cache to forget a file, which it may ignore.
inline void forget_cached(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  fsync(file);
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
}

// Brings these bytes of a file into the page cache, and none beside them.
inline void read_exactly(const std::string& path, std::int64_t begin, std::int64_t bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
  std::string content(static_cast<std::size_t>(bytes), ' ');
  EXPECT_EQ(pread(file, content.data(), content.size(), begin), bytes);
  close(file);
}

// Whether the page cache has the page of a mapped file.
inline bool in_page_cache(const void* data) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t within = reinterpret_cast<std::uintptr_t>(data) % page;
  auto* begin = const_cast<std::byte*>(static_cast<const std::byte*>(data)) - within;
  unsigned char resident = 0;
  EXPECT_EQ(mincore(begin, 1, &resident), 0);
  return (resident & 1) != 0;
}

}  // namespace sluice::ckpt
