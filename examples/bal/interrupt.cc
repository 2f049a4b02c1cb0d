// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "problem_io/safe_file.h"

namespace ceres_ext::bal {
namespace {

constexpr struct {
  int number;
  const char* name;
} kSignals[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};

const char* program_name = "";
std::atomic<SignalPhase> current_phase{SIGNAL_KILLS};
std::atomic<bool> is_interrupted{false};

void Say(const char* text) {
  // There is nothing to be done where this fails.
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) {
    errno = 0;
  }
}

// Calls what a signal handler may call, and nothing else.
void OnSignal(int number) {
  const int saved_errno = errno;
  const SignalPhase phase = current_phase;
  if (phase == SIGNAL_KILLS || is_interrupted.exchange(true)) {
    RemoveTemporaryFiles();
    signal(number, SIG_DFL);
    raise(number);  // when this returns
    return;
  }
  Say(program_name);
  for (const auto& entry : kSignals) {
    if (entry.number == number) {
      Say(": ");
      Say(entry.name);
    }
  }
  Say(phase == SIGNAL_ENDS_SOLVE
          ? ": the solve stops after this iteration and the results are "
            "written; a second signal kills\n"
          : ": the results are being written; a second signal kills\n");
  errno = saved_errno;
}

}  // namespace

void HandleSignals(const char* program) {
  program_name = program;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const auto& entry : kSignals) {
    sigaddset(&action.sa_mask, entry.number);
  }
  for (const auto& entry : kSignals) {
    struct sigaction before;
    if (sigaction(entry.number, nullptr, &before) == 0 &&
        before.sa_handler != SIG_IGN) {
      sigaction(entry.number, &action, nullptr);
    }
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

void SetSignalPhase(SignalPhase phase) { current_phase = phase; }

bool IsInterrupted() { return is_interrupted; }

}  // namespace ceres_ext::bal
