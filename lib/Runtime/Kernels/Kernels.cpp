//===- Kernels.cpp - Reference interpreter of comm.compute -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// `commrt_compute`: reads the description of the operands, finds the kernel by the computation's name, once per call,
// and runs it. A name without a kernel, and operands that a kernel does not know, get an opaque computation.
//
//===------------------------------------------------------------------------------------------===//

#include "Kernels.h"
#include "Core/Core.h"
#include "Core/Trace/Ranges.h"
#include "DeviceLauncher.h"
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

using namespace commsched::runtime;

/// "aten.add.Tensor" -> "add"; "prims.x.default" -> "x".
static std::string_view shortName(std::string_view name) {
  for (std::string_view prefix : {"aten.", "prims."})
    if (name.substr(0, prefix.size()) == prefix) {
      name.remove_prefix(prefix.size());
      break;
    }
  return name.substr(0, name.find('.'));
}

/// Reads operand `index` from `meta`, which goes on to the next; false if it cannot be one.
static bool readOperand(void *data, const int64_t *&meta, Operand &operand) {
  int64_t rank = meta[2];
  if (rank < 0)
    return false;
  operand = {static_cast<char *>(data), static_cast<int32_t>(meta[0]), meta[1], {meta + 3, meta + 3 + rank}, 1};
  bool isEmpty = false;
  for (int64_t size : operand.sizes) {
    if (size < 0)
      return false;
    isEmpty |= size == 0;
  }
  int64_t bytes = commrt_dtype_size(operand.dtype);
  for (int64_t size : operand.sizes)
    if (!isEmpty && (__builtin_mul_overflow(operand.elements, size, &operand.elements) ||
                     __builtin_mul_overflow(bytes, size, &bytes)))
      return false;
  operand.elements = isEmpty ? 0 : operand.elements;
  meta += 3 + rank;
  return bytes > 0 && (data || operand.elements == 0);
}

/// The kernel of the call's name, or null; `isReserved` if a lowering made it up.
static const NamedKernel *findKernel(const Call &call, bool &isReserved) {
  const NamedKernel *reserved = findReservedKernel(call.name);
  isReserved = reserved;
  return reserved ? reserved : call.mutated.empty() ? findNumericKernel(shortName(call.name)) : nullptr;
}

static Outcome runOnHost(Call &call) {
  bool isReserved;
  const NamedKernel *kernel = findKernel(call, isReserved);
  Outcome outcome = kernel ? kernel->onHost(call) : Outcome::notApplicable;
  if (outcome != Outcome::notApplicable)
    return outcome;
  if (isReserved)
    return Outcome::invalid;
  runOpaque(call);
  return Outcome::ran;
}

/// Puts the computation on the stream. `paceNs` > 0: it takes at least that long there. Without kernels the host has to
/// compute, or COMMRT_DEVICE_KERNELS=require makes that an error.
static Outcome runOnDevice(commrt_context *context, Call &call, int64_t paceNs) {
  DeviceLauncher device(context);
  if (std::string reason; !device.isPossible(reason)) {
    const char *mode = std::getenv("COMMRT_DEVICE_KERNELS");
    if (!mode || std::string_view(mode) != "require")
      return Outcome::needsHost;
    fail(context, COMMRT_ERR_UNSUPPORTED, "no kernels for the device: " + reason);
    return Outcome::failed;
  }
  if (paceNs > 0)
    device.beginPace();
  bool isReserved;
  const NamedKernel *kernel = findKernel(call, isReserved);
  Outcome outcome = kernel ? kernel->onDevice(call, *kernel, device) : Outcome::notApplicable;
  if (outcome == Outcome::notApplicable)
    outcome = isReserved ? Outcome::invalid : planOpaque(call, device);
  if (outcome != Outcome::ran)
    return outcome;
  device.endPace(paceNs);
  return device.outcome();
}

namespace {
/// The operands of a device in host memory, while a kernel runs.
struct HostOperands {
  commrt_context *context;
  std::vector<Operand> &operands;
  std::vector<std::unique_ptr<char[]>> copies;
  std::vector<char *> originals;

  HostOperands(commrt_context *context, std::vector<Operand> &operands)
      : context(context), operands(operands), copies(operands.size()), originals(operands.size()) {}
  int32_t fetch();
  int32_t store();
};
} // namespace

int32_t HostOperands::fetch() {
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand &operand = operands[i];
    originals[i] = operand.data;
    if (operand.isOnHost())
      continue;
    copies[i].reset(new (std::nothrow) char[std::max<int64_t>(1, operand.bytes())]);
    if (!copies[i])
      return fail(context, COMMRT_ERR_MEMORY, "no memory for an operand of a computation");
    operand.data = copies[i].get();
    if (!operand.isOutput() && operand.bytes() > 0)
      if (int32_t status = commrt_copy(context, operand.data, originals[i], operand.bytes(), COMMRT_COPY_FROM_DEVICE,
                                       context->stream))
        return status;
  }
  return COMMRT_OK;
}

int32_t HostOperands::store() {
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i].isWritten() && operands[i].bytes() > 0)
      if (int32_t status = commrt_copy(context, originals[i], operands[i].data, operands[i].bytes(),
                                       COMMRT_COPY_TO_DEVICE, context->stream))
        return status;
  return COMMRT_OK;
}

/// Computes on copies in host memory, in the order of the stream.
static Outcome runOnCopies(commrt_context *context, std::vector<Operand> &operands, Call &call) {
  if (refuseInCapture(context, "computation '" + std::string(call.name) + "', which the host carries out"))
    return Outcome::failed;
  HostOperands onHost(context, operands);
  if (onHost.fetch())
    return Outcome::failed;
  Outcome outcome = runOnHost(call);
  return outcome == Outcome::ran && onHost.store() ? Outcome::failed : outcome;
}

/// Lets the caller take at least the computation's cost, as far as it has not yet.
static void emulateCost(const commrt_context *context, int64_t begin, int64_t costNs) {
  while (elapsedNs(context->job) - begin < costNs)
    std::this_thread::sleep_for(std::chrono::nanoseconds(costNs - (elapsedNs(context->job) - begin)));
}

/// An error unless the operands and the values behind them can be those of a computation.
static int32_t readCall(commrt_context *context, void *const *operands, const int64_t *meta, std::vector<Operand> &all,
                        Call &call) {
  std::string what = "computation '" + std::string(call.name) + "': ";
  for (size_t i = 0; i < all.size(); ++i) {
    if (!readOperand(operands[i], meta, all[i]))
      return fail(context, COMMRT_ERR_INVALID,
                  what + "operand " + std::to_string(i) +
                      " has an unknown type, a negative size, more bytes than 64 bits count, or no address");
    (all[i].isOutput() ? call.outputs : call.inputs).push_back(&all[i]);
    if (all[i].isWritten() && !all[i].isOutput())
      call.mutated.push_back(&all[i]);
  }
  if (meta[0] < 0)
    return fail(context, COMMRT_ERR_INVALID, "commrt_compute: a negative number of extra values");
  call.extra.assign(meta + 1, meta + 1 + meta[0]);
  return COMMRT_OK;
}

int32_t commrt_compute(commrt_context *context, const char *name, int64_t numOperands, void *const *operands,
                       const int64_t *meta, int64_t costNs) {
  if (!context)
    return COMMRT_ERR_INVALID;
  if (!name || numOperands < 0 || (numOperands > 0 && !operands) || !meta)
    return fail(context, COMMRT_ERR_INVALID, "commrt_compute: an argument is NULL");
  Range range([&] { return std::string(name); });
  commrt_progress(context);
  std::vector<Operand> all(numOperands);
  Call call{name, {}, {}, {}, {}};
  if (int32_t status = readCall(context, operands, meta, all, call))
    return status;
  int64_t begin = contextNs(context), realBegin = elapsedNs(context->job);
  int64_t paceNs = context->emulatesCosts ? costNs : 0;
  void *begun = traceEvent(context, context->stream);
  // Numbers are in the host's memory, where kernels of a device cannot read them.
  bool hasNumbers = std::any_of(all.begin(), all.end(), [](const Operand &each) { return each.isOnHost(); });
  Outcome outcome = context->job->device && !hasNumbers ? runOnDevice(context, call, paceNs) : Outcome::needsHost;
  bool isOnHost = outcome == Outcome::needsHost;
  if (isOnHost)
    outcome = context->job->device ? runOnCopies(context, all, call) : runOnHost(call);
  if (outcome == Outcome::failed)
    return latched(context);
  if (outcome == Outcome::invalid)
    return fail(context, COMMRT_ERR_INVALID, "computation '" + std::string(name) + "': the operands do not fit it");
  if (outcome == Outcome::noMemory)
    return fail(context, COMMRT_ERR_MEMORY, "computation '" + std::string(name) + "': no memory for its workspace");
  if (isOnHost)
    emulateCost(context, realBegin, paceNs);
  commrt_advance(context, std::max<int64_t>(0, costNs));
  if (begun)
    traceComputation(context, name, begun, context->stream);
  else
    commrt_trace_compute(context, name, begin, contextNs(context));
  return commrt_progress(context);
}

int32_t commrt_emulate_costs(commrt_context *context, int32_t on) {
  if (!context)
    return COMMRT_ERR_INVALID;
  context->emulatesCosts = on != 0;
  return latched(context);
}

int32_t commrt_has_kernel(const char *name) {
  return name && (findReservedKernel(name) || findNumericKernel(shortName(name)));
}
