// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace ceres_ext::bal {
namespace {

constexpr char kThisProgram[] = "/proc/self/exe";
constexpr int kOutputNumber = 3;  // of kChildOutput
constexpr int kPollMilliseconds = 20;
constexpr size_t kMaxErrorsSize = 4096;

// The two ends of a pipe; those that are open are closed at the end.
class Pipe {
 public:
  ~Pipe() {
    Close(0);
    Close(1);
  }

  // No end gets one of the numbers that the child's own files have.
  bool Open() {
    int ends[2];
    if (pipe(ends) != 0) {
      return false;
    }
    for (int i = 0; i < 2; ++i) {
      fds_[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, kOutputNumber + 1);
      close(ends[i]);
    }
    return fds_[0] >= 0 && fds_[1] >= 0;
  }

  void Close(int end) {
    if (fds_[end] >= 0) {
      close(fds_[end]);
      fds_[end] = -1;
    }
  }

  // Reads the available data; closes the end when no more will come.
  void Read(std::string* text) {
    char bytes[65536];
    const ssize_t size = read(fds_[0], bytes, sizeof(bytes));
    if (size > 0) {
      text->append(bytes, size);
    } else if (size == 0 || errno != EINTR) {
      Close(0);
    }
  }

  int fd(int end) const { return fds_[end]; }

 private:
  int fds_[2] = {-1, -1};
};

// Calls what may be called between fork and exec, and nothing else.
[[noreturn]] void BeChild(char* const* argv,
                          pid_t parent,
                          int output,
                          int errors) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = open("/dev/null", O_RDWR);
  // The parent may have died before it was known whose death counts.
  if (getppid() == parent && null >= 0 && dup2(null, STDIN_FILENO) >= 0 &&
      dup2(null, STDOUT_FILENO) >= 0 && dup2(errors, STDERR_FILENO) >= 0 &&
      dup2(output, kOutputNumber) >= 0) {
    execv(kThisProgram, argv);
  }
  _exit(127);
}

}  // namespace

bool RunChild(const std::vector<std::string>& arguments,
              double max_seconds,
              bool (*is_interrupted)(),
              const std::function<void(int)>& started,
              ChildOutcome* outcome,
              std::string* error) {
  *outcome = {};
  const auto start = std::chrono::steady_clock::now();
  std::vector<char*> argv = {const_cast<char*>(kThisProgram)};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  Pipe output;
  Pipe errors;
  const pid_t parent = getpid();
  const pid_t child = output.Open() && errors.Open() ? fork() : -1;
  if (child < 0) {
    *error = std::string("expected that a process can be started, found ") +
             std::strerror(errno);
    return false;
  }
  if (child == 0) {
    BeChild(argv.data(), parent, output.fd(1), errors.fd(1));
  }
  output.Close(1);
  errors.Close(1);
  started(child);

  const auto elapsed = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
  };
  bool is_killed = false;
  while (waitpid(child, &outcome->status, WNOHANG) == 0) {
    if (!is_killed) {
      outcome->was_interrupted = is_interrupted();
      outcome->was_out_of_time =
          !outcome->was_interrupted && elapsed() > max_seconds;
      is_killed = outcome->was_interrupted || outcome->was_out_of_time;
      if (is_killed) {
        kill(child, SIGKILL);
      }
    }
    pollfd fds[2] = {{output.fd(0), POLLIN, 0}, {errors.fd(0), POLLIN, 0}};
    if (poll(fds, 2, kPollMilliseconds) > 0) {
      if (fds[0].revents != 0) {
        output.Read(&outcome->output);
      }
      if (fds[1].revents != 0) {
        errors.Read(&outcome->errors);
      }
    }
  }
  outcome->seconds = elapsed();
  while (output.fd(0) >= 0) {
    output.Read(&outcome->output);
  }
  while (errors.fd(0) >= 0) {
    errors.Read(&outcome->errors);
  }
  if (outcome->errors.size() > kMaxErrorsSize) {
    outcome->errors.erase(0, outcome->errors.size() - kMaxErrorsSize);
  }
  return true;
}

}  // namespace ceres_ext::bal
