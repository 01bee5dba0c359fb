// What the programs have in common that are one rank of several, for tests and scripts: they start their ranks and join
// them as the command line does.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <memory>

#include "app/ranks.h"
#include "comm/group_conformance.h"
#include "core/error.h"

namespace sluice::test {

// Every check of groups, and a line for each.
inline void print_conformance(Group& group) {
  for (const Check& check : conformance_checks()) {
    check.run(group);
    group.barrier();
    if (group.rank() == 0) std::printf("%s %d ok\n", check.name, group.size());
  }
}

inline int run_rank(const app::RankOptions& options, const std::function<int(Group& world)>& work) {
  const std::unique_ptr<app::RankSession> session = app::join_ranks(options);
  int code = 0;
  try {
    code = work(session->world());
  } catch (const Error& e) {
    session->report(e.what());
    code = e.exit_code();
  } catch (const std::exception& e) {
    session->report(e.what());
    code = 1;
  }
  return session->finish(code);
}

// main: the exit code of `work`, or that of its error, once all ranks have ended.
inline int run_probe(const app::RankOptions& options, int argc, char** argv,
                     const std::function<int(Group& world)>& work) {
  try {
    if (!app::is_rank() && options.ranks > 1) return app::start_ranks(options.ranks, argc, argv);
    return run_rank(options, work);
  } catch (const Error& e) {
    std::fprintf(stderr, "probe: %s\n", e.what());
    return e.exit_code();
  }
}

}  // namespace sluice::test
