//===- Search.cpp - A search for short schedules ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Runs the phases. A phase that has nothing left to do, or no effort, ends at once.
//
//===------------------------------------------------------------------------------------------===//

#include "Search.h"
#include "SearchPhases.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

void Search::run(int64_t effort, Ns bound) {
  state.allow(effort, bound);
  state.tellBegin();
  for (const SearchPhase &phase : searchPhases()) {
    if (state.isShortest() || llvm::is_contained(state.options.without, phase.name))
      continue;
    state.beginPhase(phase.name, phase.percent);
    phase.run(state);
  }
  state.expanded();
  state.tellEnd();
}
