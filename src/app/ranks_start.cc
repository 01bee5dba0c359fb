// Starting the ranks of this host by mpirun, and waiting for them.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "app/ranks.h"
#include "app/ranks_board.h"
#include "app/ranks_files.h"
#include "app/ranks_input.h"
#include "comm/board.h"
#include "core/error.h"

namespace sluice::app {
namespace {

constexpr const char* kAdvice = "install OpenMPI: sudo apt-get install openmpi-bin";
constexpr int kNoSuchProgram = 127;
constexpr std::chrono::milliseconds kToAllOfThem(50);  // for a signal that is sent to one process after the other

constexpr const char* kShared = "/dev/shm";
constexpr const char* kFolder = ".d";  // at the end of its name

std::string name_of(uid_t user) { return "sluice-" + std::to_string(user) + "-"; }

// A folder that is in use: its lock ends with the process that holds it.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder) : file_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    held_ = file_ >= 0 && flock(file_, LOCK_EX | LOCK_NB) == 0;
  }
  ~FolderLock() {
    if (file_ >= 0) close(file_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  bool held() const { return held_; }

 private:
  int file_;
  bool held_ = false;
};

// What runs have left whose starter was killed and could not clean up: tens of megabytes of memory each.
void remove_leftovers() {
  const std::string prefix = name_of(getuid());
  std::error_code ignored;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator at(kShared, ignored); !ignored && at != end; at.increment(ignored)) {
    const std::filesystem::path path = at->path();
    const std::string name = path.filename();
    if (name.compare(0, prefix.size(), prefix) != 0 || path.extension() != kFolder) continue;
    const pid_t starter = std::atoi(name.c_str() + prefix.size());
    if (starter <= 0 || kill(starter, 0) == 0 || errno != ESRCH) continue;
    if (!FolderLock(path).held()) continue;  // its starter lives in another container, with other process ids
    std::error_code failed;
    std::filesystem::remove_all(path, failed);
    std::filesystem::remove(std::filesystem::path(path).replace_extension(), failed);
  }
}

// What this run leaves in memory and files: the board, and a folder for what OpenMPI makes. Both go when it ends, also
// after ranks were killed that could not clean up.
class Traces {
 public:
  explicit Traces(int ranks)
      : name_("/" + name_of(getuid()) + std::to_string(getpid()) + "-" +
              std::to_string(comm::host_clock_us() % 1'000'000)),
        folder_(kShared + name_ + kFolder),
        board_(comm::Board::in_host(name_, ranks)) {
    std::error_code ignored;  // without it OpenMPI uses its own places
    std::filesystem::create_directory(folder_, ignored);
    lock_.emplace(folder_);
  }
  ~Traces() {
    comm::Board::unlink(name_);
    // Ranks that mpirun has given up may still be clearing away what is theirs, and removal stops at what vanishes.
    for (int attempt = 0; attempt < 100; ++attempt) {
      std::error_code failed;
      std::filesystem::remove_all(folder_, failed);
      if (!failed) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  Traces(const Traces&) = delete;
  Traces& operator=(const Traces&) = delete;

  const std::string& name() const { return name_; }
  const std::string& folder() const { return folder_; }
  comm::Board& board() const { return *board_; }

 private:
  std::string name_;
  std::string folder_;
  std::shared_ptr<comm::Board> board_;
  std::optional<FolderLock> lock_;
};

std::vector<std::string> command_line(const Traces& traces, int argc, char** argv) {
  std::vector<std::string> line = {"mpirun",          "-n",        std::to_string(traces.board().ranks()),
                                   "--oversubscribe", "--bind-to", "none",
                                   "--quiet",         "--stdin",   "none"};
  const auto set = [&line](const char* parameter, const std::string& value) {
    line.insert(line.end(), {"--mca", parameter, value});
  };
  set("pml", "ob1");
  set("btl", "self,vader");
  set("btl_vader_backing_directory", traces.folder());
  set("orte_tmpdir_base", traces.folder());
  if (geteuid() == 0) line.emplace_back("--allow-run-as-root");
  line.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  line.insert(line.end(), argv + 1, argv + argc);
  return line;
}

// The only process of a launcher starts ranks of its own, which are not to look for that launcher.
void forget_launcher() {
  std::vector<std::string> names;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    for (const std::string_view prefix : {"OMPI_", "PMIX_", "PMI_", "ORTE_"}) {
      if (text.starts_with(prefix)) names.emplace_back(text.substr(0, text.find('=')));
    }
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

// Those that ask to end, and that of a child's end.
sigset_t awaited_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : kEndingSignals) sigaddset(&set, s);
  sigaddset(&set, SIGCHLD);
  return set;
}

std::string ignored_signals() {
  std::string text;
  for (const int s : kEndingSignals) {
    struct sigaction action = {};
    sigaction(s, nullptr, &action);
    if (action.sa_handler == SIG_IGN) text += (text.empty() ? "" : " ") + std::to_string(s);
  }
  return text;
}

// In the child. mpirun would kill the ranks that are to end in order, so what the user sends to all of a process group
// or of a service must not reach it: it gets a group of its own and blocks what ends services. SIGINT is left to the
// starter.
[[noreturn]] void become_mpirun(std::vector<std::string>& line, const sigset_t& before) {
  std::vector<char*> arguments;
  for (std::string& argument : line) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  setpgid(0, 0);
  sigset_t mask = before;
  for (const int s : kEndingSignals) sigaddset(&mask, s);
  sigdelset(&mask, SIGINT);
  signal(SIGINT, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGINT);
  execvp(arguments[0], arguments.data());
  _exit(kNoSuchProgram);
}

// Signals that mpirun was sent and does not take, a bit each.
std::uint64_t pending(pid_t mpirun) {
  std::ifstream status("/proc/" + std::to_string(mpirun) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("ShdPnd:")) return std::stoull(line.substr(7), nullptr, 16);
  }
  return 0;
}

// Waits for the child; what asks to end goes to rank 0, or ends mpirun while there is no rank yet. A service manager
// sends to every process of the service: what mpirun has got rank 0 has too, and must not see a second time.
int wait_for(pid_t mpirun, comm::Board& board) {
  const sigset_t set = awaited_signals();
  std::uint64_t seen = 0;
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(mpirun, &status, WNOHANG);
    if (ended == mpirun) return status;
    if (ended < 0) fail(ErrorCode::resources, std::string("waiting for mpirun: ") + std::strerror(errno));
    const int signal = sigwaitinfo(&set, nullptr);
    if (signal == SIGCHLD || signal < 0) continue;
    board.set_signal(signal);
    std::this_thread::sleep_for(kToAllOfThem);
    const std::uint64_t fresh = pending(mpirun) & ~seen;
    seen |= fresh;
    const pid_t first = board.pid(0);
    if (first <= 0) {
      kill(mpirun, SIGINT);
    } else if ((fresh >> (signal - 1) & 1) == 0) {
      kill(first, signal);
    }
  }
}

// Rank 0 died of what the user sent, or of its own accord after it: the code a shell gives for the signal.
int code_of_signal(const comm::Board& board, int code) {
  const int signal = board.signal();
  if (signal == 0 || board.reporter() >= 0 || board.exit_code() >= 0 || code == 128 + SIGKILL) return 0;
  return board.pid(0) == 0 || board.gone(0) ? 128 + signal : 0;
}

// What mpirun's exit means. Ranks say themselves what ended them, but for one that was killed.
int exit_code(int status, const comm::Board& board) {
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code == 0) return 0;
  if (const int ended = code_of_signal(board, code); ended != 0) return ended;
  if (board.exit_code() >= 0) return board.exit_code();
  if (board.reporter() >= 0) return static_cast<int>(ErrorCode::resources);
  if (WIFSIGNALED(status)) {
    fail(ErrorCode::resources, "mpirun was killed by signal " + std::to_string(WTERMSIG(status)),
         "it to live as long as the ranks do, which end with it");
  }
  // Ranks that never joined come first: mpirun ends the others for one, perhaps before they could. It ends them for one
  // that was killed, too, perhaps before they noticed: then nobody knows which was the first, and all are named.
  bool joined = false;
  std::string absent, gone;
  for (int r = 0; r < board.ranks(); ++r) {
    joined = joined || board.pid(r) != 0;
    if (board.pid(r) == 0) absent += (absent.empty() ? "" : ", ") + board.describe(r);
    if (board.gone(r)) gone += (gone.empty() ? "" : ", ") + board.describe(r);
  }
  const std::string cause = absent.empty() ? gone : absent;
  const std::string found = cause.empty() ? "" : ", but " + cause;
  if (!joined && code == kNoSuchProgram) fail(ErrorCode::resources, "mpirun can't be started", "", kAdvice);
  if (!joined && code <= static_cast<int>(ErrorCode::resources)) return code;  // each rank has said why
  fail(ErrorCode::resources, "the ranks ended with code " + std::to_string(code), "every rank to end in order" + found);
}

}  // namespace

int start_ranks(int ranks, int argc, char** argv) {
  if (is_launched()) forget_launcher();
  remove_leftovers();
  const Traces traces(ranks);
  setenv(kBoardVariable, traces.name().c_str(), 1);
  std::vector<std::string> line = command_line(traces, argc, argv);
  signal(SIGCHLD, SIG_DFL);  // inherited as ignored, the end of mpirun would not be told
  const sigset_t set = awaited_signals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &set, &before);
  RankInput input;  // its thread blocks the signals too, as that of the lender does
  const FileLender files(traces.name(), input.file());
  setenv(kIgnoredVariable, ignored_signals().c_str(), 1);
  setenv(kTypedVariable, input.typed() ? "1" : "", 1);
  setenv("EVENT_NOEPOLL", "1", 1);  // of mpirun's event library, which with epoll warns of files that it has closed
  const pid_t child = fork();
  if (child == 0) become_mpirun(line, before);
  const int error = errno;
  const int status = child < 0 ? 0 : wait_for(child, traces.board());
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) fail(ErrorCode::resources, std::string("fork: ") + std::strerror(error));
  return exit_code(status, traces.board());
}

}  // namespace sluice::app
