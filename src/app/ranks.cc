#include "app/ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "app/ranks_board.h"
#include "app/ranks_files.h"
#include "comm/mpi.h"
#include "core/error.h"

namespace sluice::app {
namespace {

constexpr std::chrono::milliseconds kLook(20);
constexpr int kLooksForSignal = 10;
constexpr int kLooks = 500;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void write_line(int file, const std::string& text) {
  const std::string line = text + "\n";
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t n = write(file, line.data() + done, line.size() - done);
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

// Standard output and error of ranks above 0 lead nowhere; the file returned is where reports go.
int silence() {
  const int reports = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  close(nowhere);
  return reports;
}

class OneRank final : public RankSession {
 public:
  Group& world() override { return *world_; }
  void report(const std::string& text) override { write_line(STDERR_FILENO, "sluice: " + text); }
  void refuse(const std::string& text) override { report(text); }
  void abandon(int) override {}
  int finish(int exit_code) override { return exit_code; }

 private:
  std::unique_ptr<Group> world_ = make_single_group();
};

int first_number(std::initializer_list<const char*> variables, int otherwise) {
  for (const char* name : variables) {
    const std::string value = environment(name);
    if (!value.empty()) return std::atoi(value.c_str());
  }
  return otherwise;
}

constexpr std::initializer_list<const char*> kRankVariables = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

// As the launcher says; `otherwise` when it does not.
int launched_size(int otherwise) {
  return first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, otherwise);
}

// What asks to end is rank 0's to answer, as it would without ranks; the others end with it.
void ignore_signals(int rank) {
  const std::string ignored = " " + environment(kIgnoredVariable) + " ";
  for (const int s : kEndingSignals) {
    if (rank != 0 || ignored.find(" " + std::to_string(s) + " ") != std::string::npos) signal(s, SIG_IGN);
  }
}

comm::JoinOptions join_options(const RankOptions& options) {
  comm::JoinOptions join;
  join.timeout_seconds = options.timeout_seconds;
  join.start_timeout_seconds = options.start_timeout_seconds;
  if (options.message_bytes > 0) join.message_bytes = options.message_bytes;
  join.rank = first_number(kRankVariables, 0);
  join.size = launched_size(options.ranks);
  if (join.rank < 0 || join.rank >= join.size) {
    fail(ErrorCode::usage,
         "the launcher calls this process rank " + std::to_string(join.rank) + " of " + std::to_string(join.size),
         "ranks from 0 to one less than there are", "unset its variables to run without it");
  }
  join.board_name = board_name();
  join.end = [] { _exit(static_cast<int>(ErrorCode::resources)); };
  return join;
}

class OneOfSeveral final : public RankSession {
 public:
  explicit OneOfSeveral(const RankOptions& options) {
    // The launcher's death ends this process, whatever it is waiting for.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // A closed pipe is an error that rank 0 reports, not its sudden death, which the others would report.
    signal(SIGPIPE, SIG_IGN);
    comm::JoinOptions how = join_options(options);
    how.report = [this, rank = how.rank](const std::string& what) {
      write_line(reports_, "sluice: rank " + std::to_string(rank) + ": " + what);
    };
    ignore_signals(how.rank);
    process_ = comm::join_mpi(how);
    try {
      join(options);
    } catch (const Error& e) {
      report(e.what());
      process_->end_all(e.exit_code());
      throw;
    }
  }
  ~OneOfSeveral() override {
    if (!finished_) end(static_cast<int>(ErrorCode::resources));
  }

  Group& world() override { return *world_; }

  void report(const std::string& text) override {
    failed_ = true;
    const std::string who = "rank " + std::to_string(process_->rank());
    if (process_->rank() != 0) await_end_by_signal();
    tell(text.empty() ? "" : "sluice: " + (text.starts_with("rank ") ? "" : who + ": ") + text);
  }

  void refuse(const std::string& text) override {
    if (process_->rank() != 0) {
      await_same_of_rank_0();
      return report(text);
    }
    failed_ = true;
    tell("sluice: " + text);
  }

  void abandon(int exit_code) override {
    finished_ = true;
    end(exit_code);
  }

  int finish(int exit_code) override {
    finished_ = true;
    std::fflush(nullptr);
    if (failed_) return end(exit_code);
    try {
      const int code = agreed_code(exit_code);
      world_.reset();
      if (code != 0) process_->board().set_exit_code(code);  // a rank that fails to leave has still the word
      process_->leave();
      return code;
    } catch (const Error& e) {
      report(e.what());
      return end(e.exit_code());
    }
  }

 private:
  void join(const RankOptions& options) {
    if (process_->rank() != 0) {
      reports_ = silence();
    } else if (const std::string lender = environment(kBoardVariable); !lender.empty()) {
      borrow_files(lender);
    }
    if (process_->size() != options.ranks) {
      fail(ErrorCode::usage, "the launcher started " + std::to_string(process_->size()) + " ranks",
           "as many as --tp says, which is " + std::to_string(options.ranks));
    }
    world_ = process_->make_world();
  }

  // The first of all ranks that fail writes its line; the others go on, which ends all, when it is written.
  void tell(const std::string& line) {
    comm::Board& board = process_->board();
    if (!board.claim_report(process_->rank())) return board.await_report();
    if (!line.empty()) write_line(reports_, line);
    board.set_reported();
  }

  // A mistake that rank 0 makes too is its to tell, without a rank in front. One that goes on has made none.
  void await_same_of_rank_0() {
    const comm::Board& board = process_->board();
    for (int i = 0; i < kLooks && board.reporter() < 0 && !board.gone(0); ++i) {
      if (board.ahead(0, process_->rank())) return;
      std::this_thread::sleep_for(kLook);
    }
  }

  // A signal of the user's may have ended rank 0, or its own word, which is no fault: mpirun notices and ends the
  // others, this one too.
  void await_end_by_signal() {
    const comm::Board& board = process_->board();
    for (int i = 0; i < kLooks && board.gone(0) && board.reporter() < 0; ++i) {
      const bool meant = board.signal() != 0 || board.exit_code() >= 0;
      if (!meant && i >= kLooksForSignal) return;
      if (meant) signal(SIGTERM, SIG_DFL);  // mpirun ends what takes no notice of it a second later
      std::this_thread::sleep_for(kLook);
    }
  }

  // The verdict of the lowest rank that has one: what the run ends with. Nobody leaves before all have come here.
  int agreed_code(int mine) {
    std::vector<std::int64_t> offsets, sizes(static_cast<std::size_t>(size()), sizeof(int));
    for (int r = 0; r < size(); ++r) offsets.push_back(static_cast<std::int64_t>(sizeof(int)) * r);
    std::vector<int> codes(sizes.size());
    world_->all_gather(&mine, codes.data(), {offsets.data(), sizes.data()});
    const auto verdict = std::find_if(codes.begin(), codes.end(), [](int code) { return code != 0; });
    return verdict == codes.end() ? 0 : *verdict;
  }

  int end(int exit_code) {
    process_->end_all(exit_code);
    return exit_code;
  }

  std::unique_ptr<comm::RankProcess> process_;
  std::unique_ptr<Group> world_;
  int reports_ = STDERR_FILENO;
  bool failed_ = false;
  bool finished_ = false;
};

std::string joined(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) {
    text.append(name).push_back('\0');
    text.append(value).push_back('\0');
  }
  return text;
}

Facts separated(const std::string& text) {
  Facts facts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t name_end = text.find('\0', at), value_end = text.find('\0', name_end + 1);
    facts.emplace_back(text.substr(at, name_end - at), text.substr(name_end + 1, value_end - name_end - 1));
    at = value_end + 1;
  }
  return facts;
}

std::vector<std::string> gather_texts(Group& world, const std::string& mine) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::int64_t> counts(ranks), offsets(ranks), sizes(ranks, sizeof(std::int64_t));
  for (std::size_t r = 0; r < ranks; ++r) offsets[r] = static_cast<std::int64_t>(r * sizeof(std::int64_t));
  const auto size = static_cast<std::int64_t>(mine.size());
  world.all_gather(&size, counts.data(), {offsets.data(), sizes.data()});
  std::int64_t total = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    offsets[r] = total;
    total += counts[r];
  }
  std::string all(static_cast<std::size_t>(total), ' ');
  world.all_gather(mine.data(), all.data(), {offsets.data(), counts.data()});
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks; ++r) {
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(counts[r])));
  }
  return texts;
}

void compare(const Facts& first, const Facts& other, int rank) {
  for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
    const auto& a = i < first.size() ? first[i] : Facts::value_type{other[i].first, "(absent)"};
    const auto& b = i < other.size() ? other[i] : Facts::value_type{first[i].first, "(absent)"};
    if (a == b) continue;
    fail(ErrorCode::usage,
         "rank " + std::to_string(rank) + " has " + b.first + " " + b.second + ", rank 0 has " + a.first + " " +
             a.second,
         "the same on every rank", "start all ranks with one command line, one build and the same files");
  }
}

}  // namespace

bool is_launched() { return first_number(kRankVariables, -1) >= 0; }

bool is_rank() { return is_launched() && launched_size(2) > 1; }

bool input_is_typed() { return isatty(STDIN_FILENO) != 0 || (is_rank() && !environment(kTypedVariable).empty()); }

std::string board_name() {
  std::string given = environment(kBoardVariable);
  if (!given.empty()) return given;
  std::string job = environment("PMIX_NAMESPACE");
  if (job.empty()) job = environment("SLURM_JOB_ID") + "." + environment("SLURM_STEP_ID");
  return "/sluice-" + std::to_string(getuid()) + "-" + job;
}

std::unique_ptr<RankSession> join_ranks(const RankOptions& options) {
  if (!is_rank() && options.ranks == 1) return std::make_unique<OneRank>();
  return std::make_unique<OneOfSeveral>(options);
}

void agree(Group& world, const Facts& facts) {
  const std::vector<std::string> texts = gather_texts(world, joined(facts));
  for (std::size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] != texts[0]) compare(separated(texts[0]), separated(texts[r]), static_cast<int>(r));
  }
}

}  // namespace sluice::app
