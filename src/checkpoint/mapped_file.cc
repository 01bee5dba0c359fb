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

constexpr std::size_t kFinest = 1 << 20;

// Of bytes [begin, end) of a file; less than all pages where the system does not tell.
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

// Halves what is there in part until it is small. `all` begins at `offset` of the file, on a page.
void add_uncached(int fd, std::span<const std::byte> all, std::uint64_t offset,
                  std::vector<std::span<const std::byte>>& out) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t cached = pages_in_cache(fd, offset, all.size());
  if (cached >= (all.size() + page - 1) / page) return;
  if (cached == 0 || all.size() <= kFinest) {
    const bool joined = !out.empty() && out.back().data() + out.back().size() == all.data();
    joined ? static_cast<void>(out.back() = {out.back().data(), out.back().size() + all.size()}) : out.push_back(all);
    return;
  }
  const std::size_t half = (all.size() / 2 + kFinest - 1) / kFinest * kFinest;
  add_uncached(fd, all.first(half), offset, out);
  add_uncached(fd, all.subspan(half), offset + half, out);
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
  std::vector<std::span<const std::byte>> out;
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (bytes_ != 0) add_uncached(file.fd, bytes(), 0, out);
  return out;
}

void prefetch_pages(std::span<const std::byte> range) { advise(range, MADV_WILLNEED); }

void expect_random_reads(std::span<const std::byte> range) { advise(range, MADV_RANDOM); }

void drop_pages(std::span<const std::byte> range) { advise(range, MADV_DONTNEED); }

}  // namespace sluice::ckpt
