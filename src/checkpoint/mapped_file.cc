#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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

bool is_cached(const std::string& path) {
  constexpr long kCachestat = 451;  // newer than the headers of some systems
  struct {
    std::uint64_t offset, bytes;
  } const range = {0, 0};  // 0 bytes: up to the end
  struct {
    std::uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } pages = {};
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat info {};
  if (file.fd < 0 || fstat(file.fd, &info) != 0) return false;
  if (syscall(kCachestat, file.fd, &range, &pages, 0) != 0) return false;
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return pages.cached >= (static_cast<std::uint64_t>(info.st_size) + page - 1) / page;
}

void prefetch_pages(std::span<const std::byte> range) { advise(range, MADV_WILLNEED); }

void expect_random_reads(std::span<const std::byte> range) { advise(range, MADV_RANDOM); }

void drop_pages(std::span<const std::byte> range) { advise(range, MADV_DONTNEED); }

}  // namespace sluice::ckpt
