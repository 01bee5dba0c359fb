// The user's standard output and error for rank 0 itself. What goes through mpirun has lost what it is: progress bars
// do not know the terminal, and output of a run that is being ended may be dropped.
//
// The starter makes an OutputLender; rank 0 borrows. Both on one host, by a socket that only this user can use.
#pragma once

#include <string>
#include <thread>

namespace sluice::app {

class OutputLender {
 public:
  // Lends this process's standard output and error to this user's processes that ask for `name`, until destroyed.
  explicit OutputLender(const std::string& name);
  ~OutputLender();
  OutputLender(const OutputLender&) = delete;
  OutputLender& operator=(const OutputLender&) = delete;

 private:
  void lend() const;

  int listener_ = -1;
  std::thread thread_;
};

// Makes the lender's standard output and error this process's own; without a lender nothing changes.
void borrow_output(const std::string& name);

}  // namespace sluice::app
