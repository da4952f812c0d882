//===- RuntimeComputations.cpp - Computations timed through the runtime -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Calls of commrt_compute with operands of the wanted shapes, by the host's clock or by events on the compute stream,
// and the calls that surround them.
//
//===------------------------------------------------------------------------------------------===//

#include "BenchHandles.h"
#include "CommSched/Calibration/RuntimeBench.h"
#include "CommSched/Calibration/Statistics.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace commsched;

/// The most copies of its operands through which a computation rotates on devices.
static constexpr int64_t kMostOperandSlots = 8;
/// Hops from one stream to another and back that one sample of callTimes() takes.
static constexpr int64_t kHops = 16;

std::string ComputeProbe::key() const {
  std::string text = kernel;
  for (const ProbeTensor &operand : operands) {
    text += llvm::formatv(" {0}:{1}", operand.dtype, operand.flags).str();
    for (int64_t size : operand.sizes)
      text += llvm::formatv("x{0}", size).str();
  }
  for (int64_t value : extra)
    text += llvm::formatv(" {0}", value).str();
  return text;
}

bool RuntimeBench::hasKernel(const std::string &name) const { return commrt_has_kernel(name.c_str()) == 1; }

llvm::Error RuntimeBench::prepare(const ComputeProbe &wanted) {
  isComputation = true;
  computation.compiled.reset();
  if (wanted.compile) {
    llvm::Expected<std::unique_ptr<CompiledKernel>> compiled = wanted.compile(context);
    if (!compiled)
      return compiled.takeError();
    computation.compiled = std::move(*compiled);
    return llvm::Error::success();
  }
  Computation made;
  made.kernel = wanted.kernel;
  // Memory that an earlier computation has is used again.
  made.buffers = std::move(computation.buffers);
  computation = {};
  while (made.buffers.size() > wanted.operands.size()) {
    release(made.buffers.back());
    made.buffers.pop_back();
  }
  made.buffers.resize(wanted.operands.size());
  Bytes total = 0;
  for (const ProbeTensor &operand : wanted.operands) {
    Bytes bytes = commrt_dtype_size(operand.dtype);
    for (int64_t size : operand.sizes)
      bytes *= size;
    made.strides.push_back(llvm::alignTo(std::max<Bytes>(bytes, 1), 256));
    total += made.strides.back();
    made.meta.insert(made.meta.end(),
                     {operand.dtype, operand.flags, wanted.isFlat ? 0 : static_cast<int64_t>(operand.sizes.size())});
    if (!wanted.isFlat)
      llvm::append_range(made.meta, operand.sizes);
  }
  made.meta.push_back(static_cast<int64_t>(wanted.extra.size()));
  llvm::append_range(made.meta, wanted.extra);
  if (isDevice)
    made.slots = std::clamp<int64_t>(rotatedBytes / std::max<Bytes>(1, total), 1, kMostOperandSlots);
  computation = std::move(made);
  for (auto [operand, stride, buffer] : llvm::zip_equal(wanted.operands, computation.strides, computation.buffers))
    if (llvm::Error error = grow(buffer, stride * computation.slots, operand.dtype))
      return error;
  return llvm::Error::success();
}

int32_t RuntimeBench::compute(int64_t operation) {
  if (computation.compiled)
    return computation.compiled->run();
  std::vector<void *> operands;
  for (auto [stride, buffer] : llvm::zip_equal(computation.strides, computation.buffers))
    operands.push_back(static_cast<char *>(buffer.data) + operation % computation.slots * stride);
  return commrt_compute(context, computation.kernel.c_str(), static_cast<int64_t>(operands.size()), operands.data(),
                        computation.meta.data(), /*cost_ns=*/0);
}

llvm::Expected<ProbeTime> RuntimeBench::computeOnHost(int64_t operations) {
  Ns begin = now();
  for (int64_t i = 0; i < operations; ++i)
    if (compute(i) != COMMRT_OK)
      return lastError();
  Ns total = (now() - begin) / operations;
  return ProbeTime{total, total};
}

llvm::Expected<ProbeTime> RuntimeBench::computeOnDevice(int64_t operations) {
  BenchHandles all(3, 0);
  commrt_event *&empty = all.events[0], *&begin = all.events[1], *&end = all.events[2];
  // The first one covers what the host takes to issue the others.
  if (compute(operations) != COMMRT_OK || commrt_event_record_timed(context, nullptr, &empty) != COMMRT_OK ||
      commrt_event_record_timed(context, nullptr, &begin) != COMMRT_OK)
    return lastError();
  Ns issued = now();
  for (int64_t i = 0; i < operations; ++i)
    if (compute(i) != COMMRT_OK)
      return lastError();
  issued = now() - issued;
  if (commrt_event_record_timed(context, nullptr, &end) != COMMRT_OK)
    return lastError();
  if (llvm::Error error = await(end))
    return std::move(error);
  llvm::Expected<Ns> total = elapsedBetween(empty, begin, end);
  if (!total)
    return total.takeError();
  return ProbeTime{*total / operations, issued / operations};
}

llvm::Expected<CallTimes> RuntimeBench::callTimes() {
  if (llvm::Error error = meet())
    return std::move(error);
  CallTimes times;
  commrt_stream *other = nullptr;
  BenchHandles all(2 * kHops + 3, 0);
  if (!isDevice) {
    // A wait for something that is complete; events are only bookkeeping.
    BenchHandles one(0, 1);
    llvm::Expected<commrt_group *> world = groupOfAll();
    if (!world)
      return world.takeError();
    if (commrt_barrier_start(*world, -1, one.tokens.data()) != COMMRT_OK ||
        commrt_wait_host(one.tokens.front(), -1) != COMMRT_OK)
      return lastError();
    Ns begin = now();
    for (int64_t i = 0; i < kHops; ++i)
      if (commrt_wait(one.tokens.front(), nullptr) != COMMRT_OK)
        return lastError();
    times.wait = (now() - begin) / kHops;
    return times;
  }
  commrt_event *&empty = all.events[2 * kHops], *&begin = all.events[2 * kHops + 1], *&end = all.events[2 * kHops + 2];
  if (commrt_stream_get(context, COMMRT_STREAM_COMPUTE, 1, &other) != COMMRT_OK ||
      commrt_event_record_timed(context, nullptr, &empty) != COMMRT_OK ||
      commrt_event_record_timed(context, nullptr, &begin) != COMMRT_OK)
    return lastError();
  for (int64_t i = 0; i < 2 * kHops; ++i) {
    commrt_stream *from = i % 2 == 0 ? nullptr : other, *to = i % 2 == 0 ? other : nullptr;
    Ns before = now();
    if (commrt_event_record(context, from, &all.events[i]) != COMMRT_OK)
      return lastError();
    Ns recorded = now();
    if (commrt_event_await(context, to, all.events[i]) != COMMRT_OK)
      return lastError();
    times.record += recorded - before;
    times.wait += now() - recorded;
  }
  if (commrt_event_record_timed(context, nullptr, &end) != COMMRT_OK)
    return lastError();
  if (llvm::Error error = await(end))
    return std::move(error);
  llvm::Expected<Ns> total = elapsedBetween(empty, begin, end);
  if (!total)
    return total.takeError();
  return CallTimes{times.record / (2 * kHops), times.wait / (2 * kHops), *total / (2 * kHops)};
}
