// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Signals that end a program, so that they cost no results.

#ifndef EXAMPLES_BAL_INTERRUPT_H_
#define EXAMPLES_BAL_INTERRUPT_H_

namespace ceres_ext::bal {

// The effect of the first SIGINT, SIGTERM or SIGHUP.
enum SignalPhase {
  // It kills the program, as any later one does in every phase. A SafeFile's
  // temporary file is removed before.
  SIGNAL_KILLS,
  // It is noted for IsInterrupted; a line on standard error says that the solve
  // stops after this iteration and that a second one kills.
  SIGNAL_ENDS_SOLVE,
  // It is noted; a line says that the results are being written.
  SIGNAL_WAITS,
};

// Handles these signals from now on, in the phase SIGNAL_KILLS; those that the
// parent had set to be ignored (nohup) stay so. Makes writing to a pipe without
// a reader, or beyond the largest allowed file, an error instead of a signal
// (SIGPIPE, SIGXFSZ) that would prevent the other outputs. `program` is the
// name in messages and stays where it is.
void HandleSignals(const char* program);

void SetSignalPhase(SignalPhase phase);

// True if a signal has been noted.
bool IsInterrupted();

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_INTERRUPT_H_
