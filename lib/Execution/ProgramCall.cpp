//===- ProgramCall.cpp - The call of a program's entry ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Descriptors of memrefs as the interface of compiled code lays them out.
//
//===------------------------------------------------------------------------------------------===//

#include "ProgramCall.h"
#include "llvm/Support/MathExtras.h"
#include <cstring>

using namespace llvm;
using namespace commsched;

/// Words of a ranked memref descriptor of `value` at `address`: two pointers, offset, sizes, strides.
static std::vector<int64_t> describeBuffer(const HostValue &value, void *address) {
  std::vector<int64_t> words(3 + 2 * value.shape.size());
  words[0] = words[1] = reinterpret_cast<int64_t>(address);
  int64_t stride = 1;
  for (size_t dim = value.shape.size(); dim-- > 0;) {
    words[3 + dim] = value.shape[dim];
    words[3 + value.shape.size() + dim] = stride;
    stride *= value.shape[dim];
  }
  return words;
}

/// Copies a result from where the compiled code returned it. An error of the runtime latches in the context.
static Error readResult(commrt_context *context, HostValue &result, const char *at) {
  const char *data = at;
  if (!result.isScalar) {
    std::vector<int64_t> words(3 + 2 * result.shape.size());
    std::memcpy(words.data(), at, words.size() * sizeof(int64_t));
    for (size_t dim = 0; dim < result.shape.size(); ++dim)
      result.shape[dim] = words[3 + dim];
    data = reinterpret_cast<const char *>(words[1]) + words[2] * result.elementBytes();
  }
  if (Error error = result.allocate())
    return error;
  if (result.isScalar)
    std::memcpy(result.bytes.data(), data, result.bytes.size());
  else
    commrt_copy(context, result.bytes.data(), data, result.bytes.size(), COMMRT_COPY_FROM_DEVICE, nullptr);
  return Error::success();
}

ProgramCall::ProgramCall(const Program &program, commrt_context *context, std::vector<HostValue> &arguments)
    : program(program), context(context), arguments(arguments), memory(context, arguments),
      descriptors(arguments.size()), pointers(arguments.size()) {
  size_t size = 0;
  for (const HostValue &result : program.resultValues) {
    size_t alignment = result.isScalar ? result.elementBytes() : 8;
    size = alignTo(size, alignment);
    offsets.push_back(size);
    size += result.isScalar ? result.elementBytes() : 8 * (3 + 2 * result.shape.size());
  }
  storage.resize(size / 8 + 1);
  resultPointer = storage.data();
  returnsByValue = program.resultValues.size() == 1 && program.resultValues[0].isScalar;
}

int32_t ProgramCall::create() {
  if (int32_t status = memory.create())
    return status;
  packed.clear();
  if (!program.resultValues.empty() && !returnsByValue)
    packed.push_back(static_cast<void *>(&resultPointer));
  for (size_t i = 0; i < arguments.size(); ++i) {
    descriptors[i] = describeBuffer(arguments[i], memory[i]);
    pointers[i] = descriptors[i].data();
    packed.push_back(arguments[i].isScalar ? static_cast<void *>(arguments[i].bytes.data())
                                           : static_cast<void *>(&pointers[i]));
  }
  if (returnsByValue)
    packed.push_back(resultPointer);
  return COMMRT_OK;
}

Error ProgramCall::readResults(std::vector<HostValue> &results) const {
  for (auto [result, offset] : zip_equal(program.resultValues, offsets)) {
    results.push_back(result.like());
    if (Error error = readResult(context, results.back(), reinterpret_cast<const char *>(storage.data()) + offset))
      return createStringError("result: " + toString(std::move(error)));
  }
  return Error::success();
}
