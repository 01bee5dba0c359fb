// Starting the ranks of this host by mpirun, and waiting for them.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "app/ranks.h"
#include "app/ranks_board.h"
#include "app/ranks_output.h"
#include "comm/board.h"
#include "core/error.h"

namespace sluice::app {
namespace {

constexpr const char* kAdvice = "install OpenMPI: sudo apt-get install openmpi-bin";
constexpr int kNoSuchProgram = 127;

constexpr const char* kShared = "/dev/shm";
constexpr const char* kFolder = ".d";  // at the end of its name

std::string name_of(uid_t user) { return "sluice-" + std::to_string(user) + "-"; }

// What runs have left whose starter was killed and could not clean up: tens of megabytes of memory each.
void remove_leftovers() {
  const std::string prefix = name_of(getuid());
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kShared, ignored)) {
    const std::string name = entry.path().filename();
    if (name.compare(0, prefix.size(), prefix) != 0 || entry.path().extension() != kFolder) continue;
    const pid_t starter = std::atoi(name.c_str() + prefix.size());
    if (starter <= 0 || kill(starter, 0) == 0 || errno != ESRCH) continue;
    std::filesystem::remove_all(entry.path(), ignored);
    std::filesystem::remove(std::filesystem::path(entry.path()).replace_extension(), ignored);
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
  const comm::Board& board() const { return *board_; }

 private:
  std::string name_;
  std::string folder_;
  std::shared_ptr<comm::Board> board_;
};

std::vector<std::string> command_line(const Traces& traces, int argc, char** argv) {
  std::vector<std::string> line = {
      "mpirun", "-n", std::to_string(traces.board().ranks()), "--oversubscribe", "--bind-to", "none", "--quiet"};
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

sigset_t signals(std::initializer_list<int> list) {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : list) sigaddset(&set, s);
  return set;
}

// In the child. An interrupt typed at the terminal reaches every process of the foreground group: mpirun must leave it
// to rank 0, or it would kill the ranks that are ending in order.
[[noreturn]] void become_mpirun(std::vector<std::string>& line, const sigset_t& before) {
  std::vector<char*> arguments;
  for (std::string& argument : line) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  sigset_t mask = before;
  sigaddset(&mask, SIGINT);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  execvp(arguments[0], arguments.data());
  _exit(kNoSuchProgram);
}

// Waits for the child; interrupts and requests to end go to rank 0, or to mpirun while there is no rank yet.
int wait_for(pid_t mpirun, const comm::Board& board) {
  const sigset_t set = signals({SIGINT, SIGTERM, SIGHUP, SIGCHLD});
  for (;;) {
    int status = 0;
    if (waitpid(mpirun, &status, WNOHANG) == mpirun) return status;
    const int signal = sigwaitinfo(&set, nullptr);
    if (signal == SIGCHLD || signal < 0) continue;
    const pid_t first = board.pid(0);
    kill(first > 0 ? first : mpirun, first > 0 ? signal : SIGTERM);
  }
}

// What mpirun's exit means. Ranks say themselves what ended them, but for one that was killed.
int exit_code(int status, const comm::Board& board) {
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code == 0) return 0;
  if (board.exit_code() != 0) return board.exit_code();
  if (board.reporter() >= 0) return static_cast<int>(ErrorCode::resources);
  std::string found;
  bool joined = false;
  for (int r = 0; r < board.ranks() && found.empty(); ++r) {
    joined = joined || board.pid(r) != 0;
    if (board.gone(r)) found = ", but " + board.describe(r);
  }
  if (!joined && code == kNoSuchProgram) fail(ErrorCode::resources, "mpirun can't be started", "", kAdvice);
  if (!joined && code <= static_cast<int>(ErrorCode::resources)) return code;  // each rank has said why
  fail(ErrorCode::resources, "the ranks ended with code " + std::to_string(code), "every rank to end in order" + found);
}

}  // namespace

int start_ranks(int ranks, int argc, char** argv) {
  remove_leftovers();
  const Traces traces(ranks);
  setenv(kBoardVariable, traces.name().c_str(), 1);
  std::vector<std::string> line = command_line(traces, argc, argv);
  const sigset_t set = signals({SIGINT, SIGTERM, SIGHUP, SIGCHLD});
  sigset_t before;
  sigprocmask(SIG_BLOCK, &set, &before);
  const OutputLender outputs(traces.name());  // its thread blocks the signals too
  const pid_t child = fork();
  if (child == 0) become_mpirun(line, before);
  const int error = errno;
  const int status = child < 0 ? 0 : wait_for(child, traces.board());
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) fail(ErrorCode::resources, std::string("fork: ") + std::strerror(error));
  return exit_code(status, traces.board());
}

}  // namespace sluice::app
