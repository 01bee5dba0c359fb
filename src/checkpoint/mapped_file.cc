#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "core/error.h"

namespace sluice::ckpt {
namespace {

[[noreturn]] void fail_errno(const std::string& what, int error) {
  const bool out_of_handles = error == EMFILE || error == ENFILE || error == ENOMEM;
  fail(out_of_handles ? ErrorCode::resources : ErrorCode::bad_input,
       what + " (" + std::generic_category().message(error) + ")", "a readable regular file",
       out_of_handles ? "raise the limit of open files or mappings" : "check the path and its permissions");
}

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

// Advice for every page that the range touches. The kernel wants the start on a page; it rounds the length up itself.
void advise(std::span<const std::byte> range, int advice) {
  if (range.empty()) return;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(range.data()) % page;
  madvise(const_cast<std::byte*>(range.data() - before), before + range.size(), advice);
}

// Of `bytes` of a file from `begin` on; less than all pages where the system does not tell.
std::uint64_t pages_in_cache(int fd, std::uint64_t begin, std::uint64_t bytes) {
  constexpr long kCachestat = 451;  // newer than the headers of some systems
  struct {
    std::uint64_t offset, bytes;
  } const range = {begin, bytes};
  struct {
    std::uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } pages = {};
  return fd >= 0 && syscall(kCachestat, fd, &range, &pages, 0) == 0 ? pages.cached : 0;
}

// Whether the page cache has `bytes` of a file from `begin` on, which is on a page.
bool in_cache(int fd, std::uint64_t begin, std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return pages_in_cache(fd, begin, bytes) >= (bytes + page - 1) / page;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail_errno("cannot open " + path, errno);
  struct stat info {};
  if (fstat(file.fd, &info) != 0) fail_errno("cannot examine " + path, errno);
  if (!S_ISREG(info.st_mode)) {
    fail(ErrorCode::bad_input, path + ": is " + (S_ISDIR(info.st_mode) ? "a directory" : "no regular file"),
         "a readable regular file", "check the path");
  }
  if (info.st_size == 0) return;
  const auto bytes = static_cast<std::size_t>(info.st_size);
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) fail_errno("cannot map " + path, errno);
  data_ = data;
  bytes_ = bytes;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

std::vector<std::span<const std::byte>> MappedFile::uncached(const std::string& path) const {
  constexpr std::size_t kPart = 1 << 20;
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  std::vector<std::span<const std::byte>> out;
  if (in_cache(file.fd, 0, bytes_)) return out;
  for (std::size_t at = 0; at < bytes_; at += kPart) {
    const auto part = bytes().subspan(at, std::min(kPart, bytes_ - at));
    if (in_cache(file.fd, at, part.size())) continue;
    if (!out.empty() && out.back().data() + out.back().size() == part.data()) {
      out.back() = {out.back().data(), out.back().size() + part.size()};
    } else {
      out.push_back(part);
    }
  }
  return out;
}

void prefetch_pages(std::span<const std::byte> range) {
  constexpr std::size_t kMost = 128 << 10;  // of one call the system may read no more than its read-ahead
  for (std::size_t at = 0; at < range.size(); at += kMost) {
    advise(range.subspan(at, std::min(kMost, range.size() - at)), MADV_WILLNEED);
  }
}

void expect_random_reads(std::span<const std::byte> range) { advise(range, MADV_RANDOM); }

void drop_pages(std::span<const std::byte> range) { advise(range, MADV_DONTNEED); }

}  // namespace sluice::ckpt
