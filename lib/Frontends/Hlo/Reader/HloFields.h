//===- HloFields.h - Numbers of the fields of XLA's messages ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The numbers are those of xla/service/hlo.proto and xla/xla_data.proto as of jaxlib 0.10.2, whose library has the
// descriptors of both files inside. Numbers of fields never change their meaning in later versions.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_READER_HLOFIELDS_H
#define COMMSCHED_LIB_FRONTENDS_HLO_READER_HLOFIELDS_H

#include "CommSched/Frontends/Hlo/Reader/HloModule.h"

namespace commsched::hlo {

namespace module_field {
enum : uint32_t {
  kName = 1,
  kComputations = 3,
  kHostProgramShape = 4,
  kEntryId = 6,
  kSchedule = 7,
  kInputOutputAlias = 8,
  kDeviceAssignment = 15,
  kBufferDonor = 18,
};
} // namespace module_field

namespace computation_field {
enum : uint32_t { kName = 1, kInstructions = 2, kProgramShape = 4, kId = 5, kRootId = 6 };
} // namespace computation_field

namespace instruction_field {
enum : uint32_t {
  kName = 1,
  kOpcode = 2,
  kShape = 3,
  kMetadata = 7,
  kParameterNumber = 9,
  kTupleIndex = 13,
  kDimensions = 14,
  kConvolutionDimensions = 16,
  kChannel = 26,
  kCustomCallTarget = 28,
  kDotDimensions = 30,
  kId = 35,
  kOperands = 36,
  kControlPredecessors = 37,
  kCalledComputations = 38,
  kBackendConfig = 43,
  kReplicaGroups = 49,
  kSourceTargetPairs = 52,
  kHasSideEffect = 65,
  kFrontendAttributes = 68,
  kOutputOperandAliasing = 74,
  kDeviceList = 87,
  kIotaDeviceList = 92,
  kMeshGroups = 93,
};
} // namespace instruction_field

namespace convolution_field {
enum : uint32_t { kKernelOutputFeature = 4 };
} // namespace convolution_field

namespace shape_field {
enum : uint32_t { kElementType = 2, kDimensions = 3, kTupleShapes = 4, kLayout = 5 };
} // namespace shape_field

/// ProgramShapeProto.
namespace program_field {
enum : uint32_t { kParameters = 1, kResult = 2, kParameterNames = 3 };
} // namespace program_field

namespace layout_field {
enum : uint32_t { kMemorySpace = 8 };
} // namespace layout_field

/// OutputOperandAliasing, and HloInputOutputAliasProto.AliasEntryProto, whose operand is a parameter.
namespace alias_field {
enum : uint32_t { kOutputIndex = 1, kOperand = 2, kOperandIndex = 3 };
} // namespace alias_field

namespace device_assignment_field {
enum : uint32_t { kReplicas = 1, kComputations = 2 };
} // namespace device_assignment_field

namespace schedule_field {
enum : uint32_t { kSequences = 1 };
} // namespace schedule_field

/// HloScheduleProto.SequencesEntry, and the InstructionSequence in it.
namespace sequence_field {
enum : uint32_t { kKey = 1, kValue = 2, kInstructionIds = 1 };
} // namespace sequence_field

/// Says why `order` is not an order of the computation's instructions in which operands and control predecessors come
/// first; empty if it is one. O(instructions + operands).
std::string findOrderFault(const HloComputation &computation, llvm::ArrayRef<int32_t> order);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_READER_HLOFIELDS_H
