//===- MachineModel.h - What a machine can do, from a JSON profile ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A profile describes one class of machine: compute rates, memory, links, NCCL's tuning parameters, and measured
// tables where it was calibrated. One profile serves one node and many. The format, field by field, is in
// docs/MachineModel.md; profiles of common machines are in machines/ and are installed with the project.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_MACHINE_MACHINEMODEL_H
#define COMMSCHED_MACHINE_MACHINEMODEL_H

#include "CommSched/Support/CollectiveKind.h"
#include "CommSched/Support/Units.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include <array>
#include <optional>
#include <string>
#include <vector>

namespace commsched {

/// The shipped profile that everything believes that is told of no other machine.
inline constexpr llvm::StringLiteral kDefaultMachine = "h100-sxm";

/// The element types that rates and measured tables tell apart. `Other` is for everything else (index, i1, ...).
enum class ElementType : uint8_t { F64, F32, TF32, BF16, F16, F8, F4, I64, I32, I16, I8, Other };
inline constexpr unsigned kNumElementTypes = static_cast<unsigned>(ElementType::Other) + 1;

/// The name of an element type as profiles spell it ("bf16"; "other").
llvm::StringRef stringify(ElementType type);
/// The element type of that name, or none.
std::optional<ElementType> parseElementType(llvm::StringRef name);

/// Rates by element type, in operations per second; 0 where the profile says nothing.
using RateTable = std::array<int64_t, kNumElementTypes>;

/// A class of links: how one rank reaches another.
struct LinkClass {
  /// Payload bandwidth of one rank in one direction, bytes per second.
  int64_t bytesPerSecond = 0;
  /// Latency of one hop, ns.
  Ns latency = 0;
  /// What each further peer of an all-to-all adds, ns.
  Ns message = 0;
};

/// The generations that NCCL's tuning tables tell apart.
enum class NcclGeneration : uint8_t { Volta, Ampere, Hopper, Blackwell };
/// NCCL reads some of its tables by the vendor of the host's processor.
enum class NcclCpu : uint8_t { Intel, Amd };

/// Channels of one NCCL topology graph.
struct NcclGraph {
  int64_t channels = 0;
  /// Bandwidth of one channel, GB/s.
  double channelGBps = 0;
};

/// What NCCL's tuning model needs to know of a machine.
struct NcclParameters {
  NcclGeneration generation = NcclGeneration::Ampere;
  NcclCpu cpu = NcclCpu::Intel;
  /// Rings (and trees) inside a node.
  NcclGraph ring;
  /// NVLink multicast inside a node; 0 channels where there is none.
  NcclGraph nvls;
  /// Rings across nodes, per rank of a node: a rail-optimised network gives every rank its own network card.
  NcclGraph rail;
  /// NVLink multicast across nodes, per rank of a node.
  NcclGraph nvlsRail;
  /// What the network adds to NCCL's own hop latency, µs.
  double netLatencyUs = 0;
};

/// One measured point.
struct MeasuredPoint {
  Bytes bytes = 0;
  Ns ns = 0;
};

/// Measured times of one collective on one group shape.
struct CollectiveTable {
  CollectiveKind kind = CollectiveKind::AllReduce;
  /// The group that it holds for: by symbol name where not empty, else by shape.
  std::string group;
  int64_t ranks = 0;
  int64_t nodes = 0;
  /// The element type that it holds for; any where absent.
  std::optional<ElementType> element;
  /// At least one, bytes strictly ascending.
  std::vector<MeasuredPoint> points;
};

/// A measured operation.
struct OpTime {
  /// The operation's name ("linalg.matmul"; for `comm.compute` the name in quotes).
  std::string name;
  /// Its operand types, as in "4096x4096xbf16"; empty: any.
  std::vector<std::string> shapes;
  Ns ns = 0;
};

/// A machine. Plain data; parse() is the only thing that checks it.
class MachineModel {
public:
  /// Reads a profile: by path where `nameOrPath` has a '/' or ends in ".json", else by name in the directories of
  /// searchPath(). The error names the file and the field.
  static llvm::Expected<MachineModel> load(llvm::StringRef nameOrPath);
  /// Reads a profile from text. `file` is what errors call it.
  static llvm::Expected<MachineModel> parse(llvm::StringRef json, llvm::StringRef file = "<string>");

  /// Where profiles are looked for by name, in order: the directories of the environment variable
  /// COMMSCHED_MACHINE_PATH (separated by ':'), share/commsched/machines beside the running program, the
  /// installation's, the source tree's.
  static std::vector<std::string> searchPath();
  /// Names of all profiles on the search path, sorted, each once.
  static std::vector<std::string> available();

  /// The profile as canonical JSON: sorted keys, two blanks of indentation, numbers as short as they read back exactly.
  /// Parsing it and printing it again gives the same text.
  std::string toJSON() const;

  /// Operations per second of the matrix units at large sizes; falls back to a wider type where the profile gives none.
  int64_t matrixRate(ElementType type) const;
  /// Operations per second of everything else.
  int64_t vectorRate(ElementType type) const;

  std::string name;
  std::string description;

  /// Ranks of one node. Ranks are node-major: rank r sits on node r / ranksPerNode.
  int64_t ranksPerNode = 1;

  /// Memory of one rank, bytes.
  Bytes memoryCapacity = 0;
  /// Bandwidth that kernels reach (peak x efficiency), bytes per second.
  int64_t memoryBytesPerSecond = 0;

  /// Peak and sustained rates of the matrix units, and rates of the vector units.
  RateTable peakRates{}, sustainedRates{}, vectorRates{};
  /// What every kernel costs beyond its roofline, ns.
  Ns launch = 0;

  /// Of a kernel that packs or unpacks: fixed cost, and bandwidth of bytes read plus bytes written.
  Ns copyLaunch = 0;
  int64_t copyBytesPerSecond = 0;

  /// What issuing a collective costs the compute lane, ns.
  Ns issue = 0;
  /// One communication lane for all groups instead of one per group.
  bool oneLaneForAll = false;

  /// Fixed cost of a collective of the alpha-beta model, ns.
  Ns collectiveBase = 0;
  LinkClass intra, inter;

  /// How much longer things take, in permille of their undisturbed duration (see SlowDown in Scheduling/Timeline.h):
  /// compute while any collective is in flight, and a collective that begins while another one is in flight on the same
  /// link.
  int32_t computeSlowdownPermille = 0;
  int32_t linkSlowdownPermille = 0;

  std::optional<NcclParameters> nccl;
  std::vector<CollectiveTable> collectives;
  std::vector<OpTime> ops;

private:
  /// The profile as it was read.
  llvm::json::Value document = nullptr;
};

} // namespace commsched

#endif // COMMSCHED_MACHINE_MACHINEMODEL_H
