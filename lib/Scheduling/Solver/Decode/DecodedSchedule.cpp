//===- DecodedSchedule.cpp - Result of a decode -----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Translates the steps of a decode into an order of the problem in which its buckets have been carried out.
//
//===------------------------------------------------------------------------------------------===//

#include "DecodedSchedule.h"

using namespace commsched;

Order commsched::orderOf(const DecodedSchedule &decoded, const ExpandedProblem &expanded) {
  Order order;
  order.reserve(decoded.steps.size());
  for (DecodeStep step : decoded.steps)
    switch (step.what) {
    case DecodeStep::Run:
    case DecodeStep::Unpack:
      order.push_back(expanded.image[step.id]);
      break;
    case DecodeStep::Pack:
      order.push_back(expanded.buckets[step.id].pack);
      break;
    case DecodeStep::Start:
      order.push_back(expanded.buckets[step.id].start);
      break;
    case DecodeStep::Wait:
      order.push_back(expanded.buckets[step.id].wait);
      break;
    case DecodeStep::View:
      order.push_back(expanded.buckets[step.id].view);
      break;
    }
  return order;
}

std::vector<DecodeStep> commsched::stepsOf(const Problem &problem, llvm::ArrayRef<Bucket> buckets,
                                           const ExpandedProblem &expanded, llvm::ArrayRef<NodeId> order) {
  std::vector<DecodeStep> steps;
  for (NodeId node : order) {
    if (expanded.origin[node] != kNone) {
      steps.push_back({DecodeStep::Run, expanded.origin[node]});
      continue;
    }
    int32_t index = expanded.bucketOf[node];
    const BucketNodes &names = expanded.buckets[index];
    auto unpack = llvm::find(names.unpacks, node);
    if (unpack != names.unpacks.end()) {
      NodeId member = buckets[index].members[unpack - names.unpacks.begin()];
      steps.push_back({DecodeStep::Unpack, problem.members[member].wait});
    } else {
      steps.push_back({node == names.pack    ? DecodeStep::Pack
                       : node == names.start ? DecodeStep::Start
                       : node == names.wait  ? DecodeStep::Wait
                                             : DecodeStep::View,
                       index});
    }
  }
  return steps;
}
