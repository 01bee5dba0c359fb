#include "http/server.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"
#include "http/connection.h"

namespace sluice::http {
namespace {

constexpr int kAcceptsARound = 64;  // so that a flood of connections does not starve those that are there
constexpr Seconds kRetry{0.1};

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first != nullptr) freeaddrinfo(first);
  }
};

int bound_socket(const addrinfo& address) {
  const int s = socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol);
  if (s < 0) return -1;
  const int on = 1;
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(s, address.ai_addr, address.ai_addrlen) == 0 && ::listen(s, SOMAXCONN) == 0) return s;
  const int reason = errno;
  close(s);
  errno = reason;
  return -1;
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

Server::Server(Loop& loop, Handler& handler, const ServerLimits& limits, const std::string& host, int port)
    : loop_(loop),
      handler_(handler),
      limits_(limits),
      retry_(loop,
             [this] {
               if (listener_) listener_->enable();
             }),
      parts_due_(loop, [this] { bundler_.leave(); }),
      bundler_(std::chrono::duration_cast<Bundler::Clock::duration>(limits.part_window), Bundler::Clock::now,
               [this](Bundler::Clock::duration after) { parts_due_.start(after); }) {
  listen(host, port);
}

Server::~Server() {
  listener_.reset();
  connections_.clear();
  if (socket_ >= 0) close(socket_);
}

void Server::listen(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  AddressList found;
  const std::string service = std::to_string(port);
  const int result = getaddrinfo(host.c_str(), service.c_str(), &hints, &found.first);
  if (result != 0) fail(ErrorCode::usage, "--host " + host + ": " + gai_strerror(result), "a name or an address");
  for (const addrinfo* a = found.first; a != nullptr && socket_ < 0; a = a->ai_next) socket_ = bound_socket(*a);
  if (socket_ < 0) {
    fail(ErrorCode::resources, fmt::format("cannot listen on {} port {}: {}", host, port, std::strerror(errno)),
         "an address of this machine and a free port", "choose another --port, or 0 for any free one");
  }
  port_ = port_of(socket_);
  listener_ = std::make_unique<Watch>(loop_, Watch::Kind::read, socket_, [this] { accept_some(); });
  listener_->enable();
}

void Server::accept_some() {
  for (int i = 0; i < kAcceptsARound; ++i) {
    const int s = accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (s < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (s < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) {  // no descriptors: those of ended connections come back
        listener_->disable();
        retry_.start(kRetry);
      }
      return;
    }
    if (connections() >= limits_.connections) {
      close(s);
      continue;
    }
    const int on = 1;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto connection = std::make_unique<Connection>(*this, s);
    Connection* const key = connection.get();
    connections_.emplace(key, std::move(connection));
  }
}

void Server::drain() {
  if (listener_) accept_some();  // closing the socket would reset those that wait to be accepted
  listener_.reset();
  if (socket_ >= 0) close(std::exchange(socket_, -1));
  std::vector<Connection*> all;
  for (const auto& [connection, owner] : connections_) all.push_back(connection);
  for (Connection* connection : all) connection->close_if_idle();
}

std::int64_t Server::arriving() const {
  return std::count_if(connections_.begin(), connections_.end(), [](const auto& c) { return c.first->arriving(); });
}

void Server::remove(Connection* connection) { connections_.erase(connection); }

}  // namespace sluice::http
