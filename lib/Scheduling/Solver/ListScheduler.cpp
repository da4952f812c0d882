//===- ListScheduler.cpp - Order and buckets in one forward pass ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "ListScheduler.h"
#include "Decoder.h"

using namespace commsched;

ListScheduler::ListScheduler(const ScheduleFacts &facts) : decoder(std::make_unique<Decoder>(facts)) {}

ListScheduler::~ListScheduler() = default;

bool ListScheduler::run(const Reference &reference, const Policy &policy, Bytes limit, Ns cutoff,
                        llvm::ArrayRef<Ns> bias, Decoded &result) {
  return decoder->run(reference, policy, limit, cutoff, bias, result);
}

Order commsched::orderOf(const Decoded &decoded, const ExpandedProblem &expanded) {
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
