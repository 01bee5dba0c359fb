#include "core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace sluice {
namespace {

constexpr std::size_t kReadBytes = 1 << 16;

std::string reason(int error) { return " (" + std::generic_category().message(error) + ")"; }

class Handle {
 public:
  explicit Handle(int fd) : fd_(fd) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  // Closes now; false when that fails, as it may where writing is delayed.
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

void check_kind(const std::string& path, int fd, const ReadFile& how) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) fail(ErrorCode::bad_input, "cannot read " + path + reason(errno));
  if (S_ISDIR(info.st_mode)) fail(ErrorCode::bad_input, path + " is a folder", std::string(how.what));
  if (how.regular && !S_ISREG(info.st_mode)) {
    fail(ErrorCode::bad_input, path + " is a pipe or a device", std::string(how.what));
  }
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

[[noreturn]] void fail_write(const std::string& path, int error) {
  fail(ErrorCode::resources, "cannot write " + path + reason(error), "a writable folder with free space");
}

// Where `path` leads when it is a link to something that exists.
std::string resolved(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;
  std::string target(real);
  std::free(real);
  return target;
}

void write_special(const std::string& path, std::string_view text) {
  Handle file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0 || !write_all(file.get(), text) || !file.close()) fail_write(path, errno);
}

void replace(const std::string& path, std::string_view text, mode_t mode) {
  std::string temporary = path + ".XXXXXX";
  Handle file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (file.get() < 0) fail_write(path, errno);
  const bool written = write_all(file.get(), text) && ::fchmod(file.get(), mode) == 0 && file.close();
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  ::unlink(temporary.c_str());
  fail_write(path, error);
}

// Mode of a new file under the umask of this process.
mode_t new_file_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

std::string read_file(const std::string& path, const ReadFile& how) {
  // Without waiting for the other end of a pipe, which check_kind then refuses.
  const Handle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | (how.regular ? O_NONBLOCK : 0)));
  if (file.get() < 0) {
    fail(ErrorCode::bad_input, "cannot open " + path + reason(errno), std::string(how.what), "check the path");
  }
  check_kind(path, file.get(), how);
  std::string text;
  while (true) {
    const std::size_t held = text.size();
    text.resize(held + std::max(kReadBytes, held / 2));
    const ssize_t n = ::read(file.get(), text.data() + held, text.size() - held);
    const int error = errno;
    text.resize(held + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && error == EINTR) continue;
    if (n < 0) fail(ErrorCode::bad_input, "cannot read " + path + reason(error));
    if (n == 0) return text;
    if (text.size() > how.most_bytes) {
      fail(ErrorCode::bad_input, path + " is longer than " + std::to_string(how.most_bytes) + " bytes",
           std::string(how.what));
    }
  }
}

std::string replaceable_target(const std::string& path) {
  std::string target = resolved(path);
  struct stat info = {};
  if (::stat(target.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    fail(ErrorCode::resources, "cannot create " + path + ": a folder, a pipe or a device is there",
         "a file, or the name of a new one");
  }
  return target;
}

void check_writable(const std::string& path) {
  const std::string target = resolved(path);
  struct stat info = {};
  const bool exists = ::stat(target.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    fail(ErrorCode::resources, "cannot write " + path + ": a folder is there", "a file, or the name of a new one");
  }
  if (exists && !S_ISREG(info.st_mode)) {
    if (::access(target.c_str(), W_OK) != 0) fail_write(path, errno);
    return;
  }
  const std::size_t slash = target.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : target.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) fail_write(path, errno);
}

void write_file(const std::string& path, std::string_view text) {
  const std::string target = resolved(path);
  struct stat info = {};
  if (::stat(target.c_str(), &info) != 0) return replace(target, text, new_file_mode());
  if (S_ISREG(info.st_mode)) return replace(target, text, info.st_mode & 07777);
  write_special(target, text);
}

}  // namespace sluice
