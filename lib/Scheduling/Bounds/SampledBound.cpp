//===- SampledBound.cpp - Lower bounds under noise --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One bound per scenario (Bounds.md, Lemma 16).
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Bounds/SampledBound.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"

using namespace commsched;

SampledMakespan commsched::sampledLowerBound(const Problem &problem, const Noise &noise, bool bucketing) {
  ScenarioSampler sampler(problem, noise);
  BoundOptions options;
  options.exactNodes = options.window = kSampledBoundWindow;
  std::vector<Ns> bounds;
  for (int32_t index = 0; index < sampler.scenarios(); ++index) {
    Problem scenario = sampler.scenario(index);
    bounds.push_back((bucketing ? jointLowerBound(scenario, options) : lowerBound(scenario, options)).makespan);
  }
  return summarize(std::move(bounds));
}
