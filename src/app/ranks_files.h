// The user's standard files for rank 0 itself. What goes through mpirun has lost what it is: progress bars do not know
// the terminal, output of a run that is being ended may be dropped, and input that comes late.
//
// The starter makes a FileLender; rank 0 borrows. Both on one host, by a socket that only this user can use.
#pragma once

#include <string>
#include <thread>

namespace sluice::app {

class FileLender {
 public:
  // Lends `input` and this process's standard output and error to this user's processes that ask for `name`, until
  // destroyed. Throws Error(resources).
  FileLender(const std::string& name, int input);
  ~FileLender();
  FileLender(const FileLender&) = delete;
  FileLender& operator=(const FileLender&) = delete;

 private:
  void lend() const;

  int input_;
  int listener_ = -1;
  std::thread thread_;
};

// Makes the lender's standard files this process's own; without a lender nothing changes.
void borrow_files(const std::string& name);

}  // namespace sluice::app
