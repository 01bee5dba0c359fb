// A whole file mapped read-only into memory.
//
// Used by the safetensors reader; every weight view of a checkpoint points into one of these, so it must outlive them.
// Move-only; the mapping keeps its address when moved. Reading from many threads is safe. A file that is truncated by
// somebody else while it is mapped raises SIGBUS on access: the one fault that a mapping cannot turn into an error.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sluice::ckpt {

class MappedFile {
 public:
  MappedFile() = default;
  // Throws Error(bad_input) when the path is no readable regular file; symbolic links are followed. An empty file maps
  // to an empty span.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& o) noexcept : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  MappedFile& operator=(MappedFile&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), bytes_}; }

  // The parts that the page cache does not have, in order, to within a megabyte: what there is to read ahead. Asking
  // for pages that are there is not free: the system looks for each small page (13 to 20 us a megabyte on one machine).
  // This costs next to nothing where the cache has pages of 2 MB, and about as much where they are small. Everything
  // where the system does not tell: before Linux 6.5, files of others, file systems that keep their pages elsewhere
  // (overlayfs). `path` leads to the file.
  std::vector<std::span<const std::byte>> uncached(const std::string& path) const;

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Asks the system to read `range` of a mapped file ahead of its use, in the background. Advice: never fails.
void prefetch_pages(std::span<const std::byte> range);

// Says that single values will be read here and there in `range`: each then costs one page instead of a stretch of the
// file around it. Holds until the file is unmapped. Advice: never fails.
void expect_random_reads(std::span<const std::byte> range);

// Gives back the memory of all pages that `range` of a mapped file touches: they leave the resident set of this process
// and are read again, usually from the page cache, when touched. Neighbours on the first and last page lose nothing but
// that. Advice: never fails.
void drop_pages(std::span<const std::byte> range);

}  // namespace sluice::ckpt
