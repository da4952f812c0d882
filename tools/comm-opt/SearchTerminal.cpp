//===- SearchTerminal.cpp - Progress and interruption of long searches ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "SearchTerminal.h"
#include "CommSched/Analysis/Environment.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Scheduling/Solver/SearchObserver.h"
#include "CommSched/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"
#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

using namespace llvm;
using namespace commsched;

namespace {

/// Whether the user has interrupted the tool. Set by a signal handler.
std::atomic<bool> isInterrupted = false;

void noteInterrupt() { isInterrupted = true; }

/// Makes interrupts end searches from the first one on, and shows those of all threads in one line of standard error,
/// if that is a terminal.
class SearchTerminal : public SearchObserver {
public:
  void begin(const SearchStart &start) override {
    std::scoped_lock lock(mutex);
    // Before a search, an interrupt ends the tool at once.
    if (!std::exchange(isArmed, true))
      sys::SetInterruptFunction(noteInterrupt);
    ++running;
    effort = start.effort;
    target = start.target;
  }

  void observe(const SearchTrial &trial) override {
    std::scoped_lock lock(mutex);
    const Clock::time_point now = Clock::now();
    if (!errs().is_displayed() || now - begun < kSilent || now - shown < kBetween)
      return;
    shown = now;
    const int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now - begun).count();
    const int64_t percent = effort > 0 ? std::min<int64_t>(100 * trial.stepsSoFar / effort, 100) : 100;
    errs() << formatv(
        "\r\x1b[K{0} s, {1} % of the steps of this search: {2}, not below {3}; Ctrl-C takes the best so far", seconds,
        percent, formatNs(trial.best), formatNs(target));
    errs().flush();
  }

  void end(const SearchEnd &) override {
    std::scoped_lock lock(mutex);
    if (--running == 0 && shown > begun)
      errs() << "\r\x1b[K";
  }

private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kSilent{1000}, kBetween{200};

  std::mutex mutex;
  const Clock::time_point begun = Clock::now();
  Clock::time_point shown = begun;
  bool isArmed = false;
  int64_t running = 0, effort = 0;
  Ns target = 0;
};

/// Gives the environment of a context what watches its searches.
class SearchExtension : public mlir::DialectExtension<SearchExtension, comm::CommDialect> {
public:
  void apply(mlir::MLIRContext *, comm::CommDialect *dialect) const final {
    static SearchTerminal terminal;
    auto *environment = dialect->getRegisteredInterface<Environment>();
    environment->stop = &isInterrupted;
    environment->progress = &terminal;
  }
};

} // namespace

void commsched::watchSearches(mlir::DialectRegistry &registry) {
  registry.addExtension(mlir::TypeID::get<SearchExtension>(), std::make_unique<SearchExtension>());
}
