//===- HloModule.h - A module of XLA as it is serialized --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reads what scheduling has to know of a serialized xla::HloModuleProto, and writes the module back with another order
// of instructions. XLA is not linked: the numbers of fields are those of xla/service/hlo.proto and xla/xla_data.proto
// as of jaxlib 0.10.2. Fields that are not known here pass through byte for byte.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_FRONTENDS_HLO_READER_HLOMODULE_H
#define COMMSCHED_FRONTENDS_HLO_READER_HLOMODULE_H

#include "CommSched/Machine/MachineModel.h"
#include "CommSched/Support/Units.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace commsched::hlo {

/// A shape: an array, a tuple of shapes, or something without elements (a token).
struct HloShape {
  /// xla::PrimitiveType.
  int32_t elementType = 0;
  llvm::SmallVector<int64_t, 4> dimensions;
  /// Set for tuples only.
  std::vector<HloShape> elements;
  /// The layout's memory space; kHostMemory is not on the device.
  int64_t memorySpace = 0;

  bool isTuple() const;
  /// Number of arrays and tokens in it, at all depths.
  int64_t numLeaves() const;
  /// Appends the leaves in order.
  void appendLeaves(llvm::SmallVectorImpl<const HloShape *> &leaves) const;
  /// Number of elements of an array; saturates.
  int64_t numElements() const;
  /// Bytes of all leaves on the device; tables of tuples count 0. Saturates.
  Bytes bytes() const;
  /// The leaf at which the subshape at `index` begins, or -1 if there is none.
  int64_t leafAt(llvm::ArrayRef<int64_t> index) const;
};

/// Bits of an element of an xla::PrimitiveType; 0 of tuples, tokens and unknown types.
int64_t bitsOf(int32_t elementType);
/// The element type of machine profiles.
ElementType elementTypeOf(int32_t elementType);

/// An output of an instruction that is in the storage of an operand.
struct OperandAlias {
  llvm::SmallVector<int64_t, 2> output;
  int64_t operand = 0;
  llvm::SmallVector<int64_t, 2> operandIndex;
};

/// The groups of devices of a collective, as they are serialized: see groupsOf().
struct SerializedGroups {
  /// Lists of ids; a compact iota list; axes of a mesh; pairs of a permutation.
  llvm::SmallVector<llvm::StringRef, 1> lists;
  llvm::StringRef iota, mesh;
  llvm::SmallVector<llvm::StringRef, 1> pairs;
};

struct HloInstruction {
  /// The serialized instruction.
  llvm::StringRef bytes;
  llvm::StringRef name, opcode;
  HloShape shape;
  int64_t id = 0;
  /// Indices into the computation's instructions.
  llvm::SmallVector<int32_t, 4> operands, controlPredecessors;
  /// Indices into the module's computations.
  llvm::SmallVector<int32_t, 1> called;
  int64_t parameterNumber = 0, tupleIndex = 0;
  /// The dimension that a collective gathers, scatters or splits.
  llvm::SmallVector<int64_t, 1> dimensions;
  /// Serialized.
  llvm::StringRef backendConfig, customCallTarget;
  llvm::SmallVector<int64_t, 2> contractedOfLhs;
  /// The dimension of a convolution's kernel that indexes the features of its output, in a custom call too; -1 if there
  /// is none.
  int64_t kernelOutputFeature = -1;
  bool hasSideEffect = false;
  /// True if a user has put it into a scheduling group (`_scheduling_group_id`).
  bool isAnnotated = false;
  int64_t channel = 0;
  std::vector<OperandAlias> aliases;
  SerializedGroups groups;

  bool is(llvm::StringRef name) const { return opcode == name; }
};

struct HloComputation {
  /// The serialized computation.
  llvm::StringRef bytes;
  llvm::StringRef name;
  int64_t id = 0;
  std::vector<HloInstruction> instructions;
  int32_t root = 0;
  /// The order in which the instructions run, as indices; empty if the module has none for this computation.
  std::vector<int32_t> sequence;
};

/// An output of the entry computation that is in the storage of a parameter.
struct ParameterAlias {
  llvm::SmallVector<int64_t, 2> output;
  int64_t parameter = 0;
  llvm::SmallVector<int64_t, 2> parameterIndex;
};

/// A module. It points into the bytes that it was read from, which have to outlive it.
struct HloModule {
  llvm::StringRef bytes;
  llvm::StringRef name;
  std::vector<HloComputation> computations;
  int32_t entry = 0;
  /// All computations, each after those that it calls.
  std::vector<int32_t> calleesFirst;
  std::vector<ParameterAlias> aliases;
  /// Number of devices that the program runs on; at least 1.
  int64_t devices = 1;

  const HloComputation &entryComputation() const { return computations[entry]; }
};

/// Reads a serialized HloModuleProto. Fails, in one line, if the bytes are not one, if it has
/// no schedule, or if ids in it do not match. A module that is read has only operands that exist and come first in the
/// order, every instruction once in its computation's order, and computations that do not call themselves. O(size).
llvm::Expected<HloModule> readModule(llvm::StringRef bytes);

/// The groups of a collective as lists of device ids; one group of all devices if it names none. Fails if they are
/// malformed or name more than kMaxDevices devices.
llvm::Expected<std::vector<std::vector<int64_t>>> groupsOf(const HloModule &module, const SerializedGroups &groups);

/// The source and the target of each pair of a permutation, one after the other; empty if there are no pairs. Fails on
/// bytes that are malformed. The ids may be any numbers.
llvm::Expected<std::vector<int64_t>> readPairs(const SerializedGroups &groups);

/// The most devices that the groups of a collective may name: as many as no cluster has.
inline constexpr int64_t kMaxDevices = 1 << 20;
/// The memory space of the host's memory.
inline constexpr int64_t kHostMemory = 5;

} // namespace commsched::hlo

#endif // COMMSCHED_FRONTENDS_HLO_READER_HLOMODULE_H
