#include "app/ranks_output.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>

namespace sluice::app {
namespace {

using Files = std::array<int, 2>;

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

// A message of one byte that carries two files.
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

OutputLender::OutputLender(const std::string& name) : listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  const Address address(name);
  if (listener_ < 0 || bind(listener_, address.get(), address.length) != 0 || listen(listener_, 1) != 0) return;
  thread_ = std::thread([this] { lend(); });
}

OutputLender::~OutputLender() {
  if (thread_.joinable()) {
    shutdown(listener_, SHUT_RDWR);  // ends accept()
    thread_.join();
  }
  if (listener_ >= 0) close(listener_);
}

void OutputLender::lend() const {
  for (;;) {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    if (same_user(connection)) send_files(connection, {STDOUT_FILENO, STDERR_FILENO});
    close(connection);
  }
}

void borrow_output(const std::string& name) {
  const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connection < 0) return;
  const Address address(name);
  Files files = {-1, -1};
  if (connect(connection, address.get(), address.length) == 0 && receive_files(connection, files)) {
    dup2(files[0], STDOUT_FILENO);
    dup2(files[1], STDERR_FILENO);
    close(files[0]);
    close(files[1]);
  }
  close(connection);
}

}  // namespace sluice::app
