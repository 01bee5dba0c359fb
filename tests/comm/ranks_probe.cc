// A rank for the tests of runs over processes: `ranks_probe MODE [--tp N] [--limit SECONDS] [--start SECONDS] [--who
// RANK]`.
//
// It starts its ranks and joins them as the command line does, then does what MODE says. "conformance" runs every check
// and prints one line a check; the others are faults of one rank while the others sum.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "comm/probe.h"

namespace sluice {
namespace {

struct Request {
  std::string mode;
  int tp = 1;
  int who = 1;
  double limit = 5;
  double start = 300;
  std::int64_t message = 0;
};

Request parse(int argc, char** argv) {
  Request r;
  r.mode = argv[1];
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--tp") r.tp = std::stoi(value);
    if (flag == "--who") r.who = std::stoi(value);
    if (flag == "--message") r.message = std::stoll(value);
    if (flag == "--start") r.start = std::stod(value);
    if (flag == "--limit") r.limit = std::stod(value);
  }
  return r;
}

// Sums without end: what ends it is the fault.
void sum_on(Group& world) {
  std::vector<float> data(20'000, 1.0f);
  for (;;) world.all_reduce_sum(data.data(), data.size());
}

void facts(Group& world, const Request& request) {
  const bool other = world.rank() == request.who;
  app::agree(world, {{"version", "1"}, {"--quantization", other ? "fp8" : "modelopt_fp4"}});
}

void echo(Group& world) {
  char line[100] = "";
  if (world.rank() == 0 && std::fgets(line, sizeof line, stdin) == nullptr) std::strcpy(line, "nothing\n");
  world.broadcast(line, sizeof line, 0);
  std::printf("read %s", line);  // only rank 0's reaches the user
  std::fprintf(stderr, "note of rank 0\n");
}

// Rank 0 waits for a signal and ends all in order, as a server does.
volatile sig_atomic_t interrupted = 0;
void serve(Group& world) {
  if (world.rank() == 0) {
    for (const int s : {SIGINT, SIGTERM}) {
      signal(s, [](int number) { interrupted = number; });
    }
    std::printf("serving\n");
    std::fflush(stdout);
    while (interrupted == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  int number = interrupted;
  world.broadcast(&number, sizeof number, 0);
  std::printf("ended by %d\n", number);
}

// Which file rank 0's standard output is.
int files(Group& world) {
  char name[1000] = "";
  if (world.rank() == 0 && readlink("/proc/self/fd/1", name, sizeof name - 1) > 0) std::printf("%s\n", name);
  return 0;
}

// A check that does not pass: much output, no error.
int verdict(Group& world) {
  world.barrier();
  if (world.rank() != 0) return 0;
  for (int i = 0; i < 20'000; ++i) std::printf("line %d\n", i);
  if (std::fflush(stdout) != 0) fail(ErrorCode::resources, "standard output could not be written");
  return 1;
}

void fault(Group& world, const Request& request) {
  for (int i = 0; i < 10; ++i) world.barrier();
  if (world.rank() == 0) {
    std::printf("started\n");
    std::fflush(stdout);
  }
  if (world.rank() != request.who) return sum_on(world);
  std::vector<float> data(20'000, 1.0f);
  for (int i = 0; i < 20; ++i) world.all_reduce_sum(data.data(), data.size());
  if (request.mode == "kill") raise(SIGKILL);
  if (request.mode == "stop") raise(SIGSTOP);
  if (request.mode == "throw") fail(ErrorCode::bad_input, "shard 2 can't be read", "a readable file");
  if (request.mode == "exit") _exit(0);
  if (request.mode == "other") world.barrier();
  if (request.mode == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
}

int work(Group& world, const Request& request) {
  if (request.mode == "verdict") return verdict(world);
  if (request.mode == "files") return files(world);
  if (request.mode == "conformance") {
    test::print_conformance(world);
  } else if (request.mode == "facts") {
    facts(world, request);
  } else if (request.mode == "echo") {
    echo(world);
  } else if (request.mode == "serve") {
    serve(world);
  } else {
    fault(world, request);
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  const sluice::Request request = sluice::parse(argc, argv);
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (request.mode == "exit-early" && rank != nullptr && std::to_string(request.who) == rank) return 0;
  return sluice::test::run_probe({request.tp, request.limit, request.start, request.message}, argc, argv,
                                 [&](sluice::Group& world) { return sluice::work(world, request); });
}
