#include "app/ranks_files.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "core/error.h"

namespace sluice::app {
namespace {

using Files = std::array<int, 3>;  // standard input, output and error

// A name without a file: it ends with its socket.
struct Address {
  explicit Address(const std::string& name) {
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address = {};
  socklen_t length = 0;
};

bool same_user(int connection) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid();
}

// A message of one byte that carries the files.
struct FileMessage {
  FileMessage() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(Files))> control = {};
  msghdr message = {};
};

void send_files(int connection, const Files& files) {
  FileMessage m;
  cmsghdr* const header = CMSG_FIRSTHDR(&m.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof files);
  std::memcpy(CMSG_DATA(header), files.data(), sizeof files);
  sendmsg(connection, &m.message, MSG_NOSIGNAL);
}

bool receive_files(int connection, Files& files) {
  FileMessage m;
  if (recvmsg(connection, &m.message, MSG_CMSG_CLOEXEC) <= 0) return false;
  const cmsghdr* const header = CMSG_FIRSTHDR(&m.message);
  if (header == nullptr || header->cmsg_len != CMSG_LEN(sizeof files)) return false;
  std::memcpy(files.data(), CMSG_DATA(header), sizeof files);
  return true;
}

}  // namespace

FileLender::FileLender(const std::string& name, int input)
    : input_(input), listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  const Address address(name);
  if (listener_ < 0 || bind(listener_, address.get(), address.length) != 0 || listen(listener_, 1) != 0) {
    const std::string why = std::strerror(errno);
    if (listener_ >= 0) close(listener_);
    fail(ErrorCode::resources, "a local socket for the ranks: " + why);
  }
  thread_ = std::thread([this] { lend(); });
}

FileLender::~FileLender() {
  if (thread_.joinable()) {
    shutdown(listener_, SHUT_RDWR);  // ends accept()
    thread_.join();
  }
  if (listener_ >= 0) close(listener_);
}

void FileLender::lend() const {
  for (;;) {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    if (same_user(connection)) send_files(connection, {input_, STDOUT_FILENO, STDERR_FILENO});
    close(connection);
  }
}

void borrow_files(const std::string& name) {
  const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connection < 0) return;
  const Address address(name);
  Files files = {-1, -1, -1};
  if (connect(connection, address.get(), address.length) == 0 && same_user(connection) &&
      receive_files(connection, files)) {
    for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; ++standard) {
      dup2(files[static_cast<std::size_t>(standard)], standard);
      close(files[static_cast<std::size_t>(standard)]);
    }
  }
  close(connection);
}

}  // namespace sluice::app
