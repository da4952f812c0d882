//===- ModuleBuilder.h - Modules of XLA, written by hand --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Makes small modules whose answers are counted by hand:
//
//   ModuleBuilder builder;
//   int64_t body = builder.begin("body", /*isFused=*/true);
//   int64_t p = builder.parameter("p", f32({1024}), 0);
//   builder.add("o", "negate", f32({1024}), {p});
//   builder.begin("main");
//   int64_t x = builder.parameter("x", f32({1024}), 0);
//   builder.add("r", "fusion", f32({1024}), {x}, called({body}));
//   std::string bytes = builder.serialize();
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_FRONTENDS_MODULEBUILDER_H
#define COMMSCHED_TEST_FRONTENDS_MODULEBUILDER_H

#include "Hlo/Reader/HloFields.h"
#include "Hlo/Reader/WireFormat.h"
#include <string>
#include <vector>

namespace commsched::hlo::test {

//===- Shapes, serialized ---------------------------------------------------------------------===//

/// An array of an xla::PrimitiveType.
inline std::string array(int64_t elementType, llvm::ArrayRef<int64_t> dimensions) {
  std::string shape;
  writeInteger(shape_field::kElementType, elementType, shape);
  writeIntegers(shape_field::kDimensions, dimensions, shape);
  return shape;
}
inline std::string pred(llvm::ArrayRef<int64_t> dimensions) { return array(1, dimensions); }
inline std::string u8(llvm::ArrayRef<int64_t> dimensions) { return array(6, dimensions); }
inline std::string f32(llvm::ArrayRef<int64_t> dimensions) { return array(11, dimensions); }
inline std::string bf16(llvm::ArrayRef<int64_t> dimensions) { return array(16, dimensions); }
inline std::string tuple(llvm::ArrayRef<std::string> elements) {
  std::string shape = array(13, {});
  for (const std::string &element : elements)
    writeBytes(shape_field::kTupleShapes, element, shape);
  return shape;
}

//===- Further fields of instructions, serialized ---------------------------------------------===//

inline std::string integers(uint32_t field, llvm::ArrayRef<int64_t> values) {
  std::string bytes;
  writeIntegers(field, values, bytes);
  return bytes;
}
inline std::string called(llvm::ArrayRef<int64_t> computations) {
  return integers(instruction_field::kCalledComputations, computations);
}
inline std::string dimensions(llvm::ArrayRef<int64_t> values) {
  return integers(instruction_field::kDimensions, values);
}
/// One group of devices of a collective.
inline std::string group(llvm::ArrayRef<int64_t> devices) {
  std::string bytes;
  writeBytes(instruction_field::kReplicaGroups, integers(1, devices), bytes);
  return bytes;
}
inline std::string target(llvm::StringRef name) {
  std::string bytes;
  writeBytes(instruction_field::kCustomCallTarget, name, bytes);
  return bytes;
}
/// The dimension of a convolution's kernel that indexes the features of its output.
inline std::string kernelOutputFeature(int64_t dimension) {
  std::string numbers, bytes;
  writeInteger(convolution_field::kKernelOutputFeature, dimension, numbers);
  writeBytes(instruction_field::kConvolutionDimensions, numbers, bytes);
  return bytes;
}

//===- Modules --------------------------------------------------------------------------------===//

/// Writes a module from its beginning to its end. The instructions of a computation run in the order in which they are
/// added; the last one is its root. The last computation is the entry.
class ModuleBuilder {
public:
  /// Begins a computation, and returns its id. A fused one has no order.
  int64_t begin(llvm::StringRef name, bool isFused = false) {
    Computation &computation = computations.emplace_back();
    computation.isFused = isFused;
    writeBytes(computation_field::kName, name, computation.fields);
    return static_cast<int64_t>(computations.size());
  }

  /// Appends an instruction to the computation that was begun last, and returns its id.
  int64_t add(llvm::StringRef name, llvm::StringRef opcode, llvm::StringRef shape,
              llvm::ArrayRef<int64_t> operands = {}, llvm::StringRef fields = "") {
    std::string instruction = fields.str();
    writeBytes(instruction_field::kName, name, instruction);
    writeBytes(instruction_field::kOpcode, opcode, instruction);
    writeBytes(instruction_field::kShape, shape, instruction);
    writeInteger(instruction_field::kId, ++lastId, instruction);
    writeIntegers(instruction_field::kOperands, operands, instruction);
    writeBytes(computation_field::kInstructions, instruction, computations.back().fields);
    computations.back().order.push_back(lastId);
    return lastId;
  }
  int64_t parameter(llvm::StringRef name, llvm::StringRef shape, int64_t number) {
    std::string field;
    writeInteger(instruction_field::kParameterNumber, number, field);
    return add(name, "parameter", shape, {}, field);
  }

  /// The module, as an HloModuleProto.
  std::string serialize() const {
    std::string module, schedule;
    writeBytes(module_field::kName, "module", module);
    for (size_t i = 0; i < computations.size(); ++i) {
      const auto id = static_cast<int64_t>(i) + 1;
      std::string computation = computations[i].fields, entry, order;
      writeInteger(computation_field::kId, id, computation);
      writeInteger(computation_field::kRootId, computations[i].order.back(), computation);
      writeBytes(module_field::kComputations, computation, module);
      if (computations[i].isFused)
        continue;
      writeIntegers(sequence_field::kInstructionIds, computations[i].order, order);
      writeInteger(sequence_field::kKey, id, entry);
      writeBytes(sequence_field::kValue, order, entry);
      writeBytes(schedule_field::kSequences, entry, schedule);
    }
    writeInteger(module_field::kEntryId, static_cast<int64_t>(computations.size()), module);
    writeBytes(module_field::kSchedule, schedule, module);
    return module;
  }

private:
  struct Computation {
    std::string fields;
    std::vector<int64_t> order;
    bool isFused = false;
  };

  std::vector<Computation> computations;
  int64_t lastId = 0;
};

} // namespace commsched::hlo::test

#endif // COMMSCHED_TEST_FRONTENDS_MODULEBUILDER_H
