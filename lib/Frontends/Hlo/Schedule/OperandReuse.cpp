//===- OperandReuse.cpp - Results in the place of operands ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Everything on the ways from the parameter to the results has to be elementwise, or a bitcast, or what ends in a
// reduction, or the array that a scatter writes into.
//
//===------------------------------------------------------------------------------------------===//

#include "OperandReuse.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

bool commsched::hlo::mayReuseOperands(const HloInstruction &instruction) {
  return (instruction.is("fusion") && instruction.called.size() == 1) || instruction.is("all-reduce") ||
         instruction.is("all-reduce-start");
}

/// Returns true if every element of the result is computed from one element of each operand. A copy is not.
static bool isElementwise(const HloInstruction &instruction) {
  static const StringSet<> names = {"abs",
                                    "add",
                                    "and",
                                    "atan2",
                                    "cbrt",
                                    "ceil",
                                    "clamp",
                                    "compare",
                                    "complex",
                                    "convert",
                                    "cosine",
                                    "divide",
                                    "erf",
                                    "exponential",
                                    "floor",
                                    "exponential-minus-one",
                                    "imag",
                                    "is-finite",
                                    "log",
                                    "log-plus-one",
                                    "logistic",
                                    "maximum",
                                    "minimum",
                                    "multiply",
                                    "negate",
                                    "not",
                                    "or",
                                    "popcnt",
                                    "power",
                                    "real",
                                    "remainder",
                                    "reduce-precision",
                                    "rsqrt",
                                    "select",
                                    "shift-left",
                                    "round-nearest-afz",
                                    "sign",
                                    "sine",
                                    "sqrt",
                                    "round-nearest-even",
                                    "subtract",
                                    "tan",
                                    "tanh",
                                    "shift-right-arithmetic",
                                    "xor",
                                    "bitcast",
                                    "count-leading-zeros",
                                    "shift-right-logical",
                                    "tuple",
                                    "bitcast-convert"};
  return names.contains(instruction.opcode);
}

/// Returns true if `user` reads the elements of `from` in their order.
static bool keepsElements(const HloComputation &body, int32_t from, int32_t user, int32_t output) {
  const HloInstruction &instruction = body.instructions[user];
  if (isElementwise(instruction) || instruction.is("reduce"))
    return true;
  bool isWritten = instruction.operands.front() == from && llvm::count(instruction.operands, from) == 1;
  return isWritten && (instruction.is("dynamic-update-slice") || (instruction.is("scatter") && user == output));
}

/// Returns true if a fusion may write the result `output` of its body in the place of the parameter `parameter`.
static bool mayOverwrite(const HloComputation &body, int32_t parameter, int32_t output) {
  int32_t root = output;
  if (body.instructions[root].is("bitcast") && !body.instructions[root].operands.empty())
    root = body.instructions[root].operands.front();
  // Indexed by instruction: its users.
  std::vector<SmallVector<int32_t, 2>> users(body.instructions.size());
  for (auto [at, instruction] : enumerate(body.instructions))
    for (int32_t operand : instruction.operands)
      users[operand].push_back(static_cast<int32_t>(at));
  std::vector<bool> reached(body.instructions.size(), false);
  SmallVector<int32_t, 16> open = {parameter};
  reached[parameter] = true;
  while (!open.empty()) {
    int32_t at = open.pop_back_val();
    // The reduction comes first, so what is made of it does not matter.
    if (body.instructions[at].is("reduce"))
      continue;
    for (int32_t user : users[at]) {
      if (!keepsElements(body, at, user, root))
        return false;
      if (!reached[user])
        open.push_back(user);
      reached[user] = true;
    }
  }
  return reached[output];
}

bool commsched::hlo::mayReuseOperand(const HloModule &module, const HloInstruction &instruction, size_t operand,
                                     int64_t leaf) {
  if (!instruction.is("fusion"))
    return instruction.operands.size() == 1 || leaf == static_cast<int64_t>(operand);
  const HloComputation &body = module.computations[instruction.called.front()];
  const HloInstruction &root = body.instructions[body.root];
  int32_t output = body.root;
  if (root.is("tuple")) {
    if (leaf >= static_cast<int64_t>(root.operands.size()))
      return false;
    output = root.operands[leaf];
  }
  for (auto [at, parameter] : enumerate(body.instructions))
    if (parameter.is("parameter") && parameter.parameterNumber == static_cast<int64_t>(operand))
      return parameter.shape.numElements() == body.instructions[output].shape.numElements() &&
             mayOverwrite(body, static_cast<int32_t>(at), output);
  return false;
}
