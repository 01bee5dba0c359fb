#include "app/ranks_input.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace sluice::app {
namespace {

constexpr std::size_t kChunkBytes = 4096;  // a pipe that takes anything takes as much, whole
constexpr int kForever = -1;
constexpr int kLookAgainMs = 100;

void close_all(std::array<int, 2>& files) {
  for (int& file : files) {
    if (file >= 0) close(file);
    file = -1;
  }
}

}  // namespace

RankInput::RankInput() {
  if (fcntl(STDIN_FILENO, F_GETFD) < 0) {
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing > STDIN_FILENO && dup2(nothing, STDIN_FILENO) >= 0) close(nothing);
  }
  if (isatty(STDIN_FILENO) == 0) return;
  if (pipe2(line_.data(), O_CLOEXEC) != 0 || pipe2(stop_.data(), O_CLOEXEC) != 0) {
    const std::string why = std::strerror(errno);
    close_all(line_);
    fail(ErrorCode::resources, "a pipe for what is typed: " + why);
  }
  thread_ = std::thread([this] { pass_on(); });
}

RankInput::~RankInput() {
  if (!typed()) return;
  close(stop_[1]);
  stop_[1] = -1;
  thread_.join();
  close_all(stop_);
  close_all(line_);
}

int RankInput::file() const { return typed() ? line_[0] : STDIN_FILENO; }

// False when it is time to stop.
bool RankInput::wait_for(int file, short events, int milliseconds) const {
  std::array<pollfd, 3> files = {{{stop_[0], POLLIN, 0}, {line_[1], 0, 0}, {file, events, 0}}};
  while (poll(files.data(), files.size(), milliseconds) < 0 && errno == EINTR) continue;
  return files[0].revents == 0 && files[1].revents == 0;
}

// Reads no more than rank 0 has room for: the rest stays for whoever reads the terminal next. In the background there
// is nothing to read, now; the signal that would stop the process for it is blocked in this thread.
void RankInput::pass_on() {
  sigset_t background;
  sigemptyset(&background);
  sigaddset(&background, SIGTTIN);
  pthread_sigmask(SIG_BLOCK, &background, nullptr);
  std::array<char, kChunkBytes> chunk;
  while (wait_for(line_[1], POLLOUT, kForever) && wait_for(STDIN_FILENO, POLLIN, kForever)) {
    const bool foreground = tcgetpgrp(STDIN_FILENO) == getpgrp();
    const ssize_t n = foreground ? read(STDIN_FILENO, chunk.data(), chunk.size()) : -1;
    if (n == 0) break;
    if (n < 0) {
      if (!wait_for(-1, 0, kLookAgainMs)) return;
    } else if (write(line_[1], chunk.data(), static_cast<std::size_t>(n)) != n) {
      return;
    }
  }
  close(line_[1]);  // the end of the input
  line_[1] = -1;
}

}  // namespace sluice::app
