//===- MachineModel.h - A machine's capabilities, from a JSON profile -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A profile describes one class of machine: compute rates, memory, links, NCCL's tuning parameters, and measured tables
// if it was calibrated. One profile serves one node and many. MachineModel.md describes each field. Profiles of
// common machines are in machines/ and are installed with the project.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_MACHINE_MACHINEMODEL_H
#define COMMSCHED_MACHINE_MACHINEMODEL_H

#include "CommSched/Support/Arithmetic.h"
#include "CommSched/Support/CollectiveKind.h"
#include "CommSched/Support/CollectiveVariant.h"
#include "CommSched/Support/Units.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include <array>
#include <optional>
#include <string>
#include <vector>

namespace commsched {

/// The default machine: a shipped profile.
inline constexpr llvm::StringLiteral kDefaultMachine = "h100-sxm";

/// The element types that rates and measured tables distinguish. `Other` stands for all further types (index, i1, ...).
enum class ElementType : uint8_t { F64, F32, TF32, BF16, F16, F8, F4, I64, I32, I16, I8, Other };
inline constexpr unsigned kNumElementTypes = static_cast<unsigned>(ElementType::Other) + 1;

/// The name of an element type in profiles ("bf16"; "other").
llvm::StringRef stringify(ElementType type);
/// The element type with this name, or none.
std::optional<ElementType> parseElementType(llvm::StringRef name);

/// Rates by element type, in operations per second; 0 if the profile gives none.
using RateTable = std::array<int64_t, kNumElementTypes>;

/// A class of links between ranks.
struct LinkClass {
  /// Payload bandwidth of one rank in one direction, bytes per second.
  int64_t bytesPerSecond = 0;
  /// Latency of one hop, ns.
  Ns latency = 0;
  /// Additional time of each further peer of an all-to-all, ns.
  Ns message = 0;
};

/// The most levels outside of nodes.
inline constexpr unsigned kMostOuterLevels = 2;

/// A level of the machine outside of nodes, such as the nodes that share their leaf switches (a rail) or a pod.
struct OuterLevel {
  std::string name;
  /// Ranks of one of its units. Ranks are unit-major: rank r is in unit r / ranks.
  int64_t ranks = 1;
  /// What leaves a unit: the part of one rank, if all ranks of the unit send out of it.
  LinkClass links;
};

/// The generations that NCCL's tuning tables distinguish.
enum class NcclGeneration : uint8_t { Volta, Ampere, Hopper, Blackwell };
/// The vendor of the host's processor, which selects some of NCCL's tables.
enum class NcclCpu : uint8_t { Intel, Amd };

/// Channels of one NCCL topology graph.
struct NcclGraph {
  int64_t channels = 0;
  /// Bandwidth of one channel, GB/s.
  double channelGBps = 0;
};

/// A size of tiles that kernels for matrix products are written for.
struct TileSize {
  /// Rows and columns of the result that one compute unit computes at a time.
  int64_t rows = 1, columns = 1;
  /// Share of the peak rate that the unit reaches with it, permille: the smaller a tile, the more operands are read
  /// for every operation.
  int64_t permille = kPermille;
};

/// How matrix products are cut into tiles, which the compute units process in waves.
struct MatrixTiles {
  /// Compute units, of which each has one tile in work.
  int64_t units = 1;
  /// What a tile takes for its start and its end, as a number of products that are summed up (see ProductShape).
  int64_t depth = 0;
  /// At least one. The library takes the fastest.
  std::vector<TileSize> sizes;
};

/// The shape of a matrix product: `batches` results of `rows` x `columns`. How many products are summed up for each
/// element, the depth, follows from the operations. Not known if `rows` is 0.
struct ProductShape {
  int64_t batches = 1, rows = 0, columns = 0;

  explicit operator bool() const { return rows > 0; }
};

/// Inputs of NCCL's tuning model.
struct NcclParameters {
  NcclGeneration generation = NcclGeneration::Ampere;
  NcclCpu cpu = NcclCpu::Intel;
  /// Rings (and trees) inside a node.
  NcclGraph ring;
  /// NVLink multicast inside a node; 0 channels if there is none.
  NcclGraph nvls;
  /// Rings across nodes, per rank of a node. In a rail-optimised network every rank has its own network card.
  NcclGraph rail;
  /// NVLink multicast across nodes, per rank of a node.
  NcclGraph nvlsRail;
  /// Latency of the network in addition to NCCL's own hop latency, µs.
  double netLatencyUs = 0;
};

/// One measured point.
struct MeasuredPoint {
  Bytes bytes = 0;
  Ns ns = 0;
  /// The error bar, ns: an interval around `ns`; zeros if the profile gives none.
  Ns lo = 0, hi = 0;
  /// Samples that were kept, and samples that were rejected as outliers; 0 if the profile does not say.
  int64_t n = 0, rejected = 0;

  bool hasErrorBar() const { return hi > 0; }
};

/// An end of the error bars of measurements, or the measurements themselves.
enum class BarEnd : uint8_t { Low, Value, High };

/// Which ends a cost model answers with. Models without error bars answer the same in every scenario.
struct CostScenario {
  BarEnd collectives = BarEnd::Value, operations = BarEnd::Value;

  bool operator==(const CostScenario &other) const {
    return collectives == other.collectives && operations == other.operations;
  }
};

/// The end of the bar from `lo` to `hi` around `value`.
inline Ns atEnd(BarEnd end, Ns value, Ns lo, Ns hi) {
  return end == BarEnd::Low ? lo : end == BarEnd::High ? hi : value;
}

/// Measured times of one collective on one group shape.
struct CollectiveTable {
  CollectiveKind kind = CollectiveKind::AllReduce;
  /// The group to which the table applies: by symbol name if not empty, or else by shape.
  std::string group;
  int64_t ranks = 0;
  int64_t nodes = 0;
  /// The element type to which the table applies; any type if absent.
  std::optional<ElementType> element;
  /// At least one point, with strictly ascending bytes.
  std::vector<MeasuredPoint> points;
  /// What the calibration noticed: "skew" (ranks more than 10 % apart), "unstable" (more than one sample in ten was an
  /// outlier).
  std::vector<std::string> flags;
};

/// A measured operation.
struct OpTime {
  /// The operation's name ("linalg.matmul"; for `comm.compute` the name in quotes).
  std::string name;
  /// Its operand types, as in "4096x4096xbf16"; empty: any types.
  std::vector<std::string> shapes;
  /// What distinguishes it from other operations of this name with these operands (getTableForm); empty: nothing.
  std::string form = {};
  Ns ns = 0;
  /// As in MeasuredPoint.
  Ns lo = 0, hi = 0;
  int64_t n = 0;

  bool hasErrorBar() const { return hi > 0; }
};

/// The kinds of kernels beside which a collective runs differently.
enum class Against : uint8_t { Matrix, Memory };
/// The name of a kind of kernels in profiles ("matrix", "memory").
llvm::StringRef stringify(Against against);

/// What a collective and a kernel that run at the same time do to each other, measured.
struct ContentionEntry {
  CollectiveKind kind = CollectiveKind::AllReduce;
  /// As in a CollectiveTable.
  Bytes bytes = 0;
  /// Thread blocks that the collective was given; 0: what its library chose.
  int64_t ctas = 0;
  Against against = Against::Matrix;
  /// By how much the kernel takes longer while the collective runs all along, and the collective while kernels do,
  /// permille.
  int32_t computePermille = 0, collectivePermille = 0;
};

/// The part of the slowest link of its group that a collective takes while it runs alone, measured beside another one:
/// `resources.shares`.
struct ShareEntry {
  CollectiveKind kind = CollectiveKind::AllReduce;
  /// As in a CollectiveTable.
  Bytes bytes = 0;
  /// Whether the groups span nodes.
  bool acrossNodes = false;
  /// The part, in millionths. Half of the link says that two of them do not disturb each other, so the part is at most
  /// that; the whole link, that they take as long as one after the other.
  int32_t part = 0;
};

/// Another way to carry out a kind of collective, which `comm.variant` chooses.
struct CollectiveVariant {
  CollectiveKind kind = CollectiveKind::AllReduce;
  VariantName name;
  /// Its time where `curves` do not apply: that of the kind's own curve, times `timePermille`, and `latency` more, ns.
  int64_t timePermille = kPermille;
  Ns latency = 0;
  /// Its own measured tables; all are of its kind.
  std::vector<CollectiveTable> curves;
  /// What it and kernels do to each other, measured; all are of its kind. Empty: derived from its means.
  std::vector<ContentionEntry> contention;
};

/// The share of the compute units, permille, that a kernel takes which is no matrix product, if the profile does not
/// say: such a kernel is bound by memory and leaves units idle.
inline constexpr int64_t kVectorUnitsPermille = 500;
/// Bytes in memory for every byte of a collective on a link, permille, if the profile does not say: a ring reads what
/// it sends and writes what it receives, and a reduction reads once more.
inline constexpr int64_t kTrafficPermille = 2500;

/// What the contention model derives from data sheets where nothing was measured.
struct MachineResources {
  /// What collectives on different lanes share, bytes per second of one rank in one direction: its network card with
  /// the slot that it is in, and its ports to the links inside the node. 0 if shares were measured and rates were not
  /// named.
  int64_t networkBytesPerSecond = 0, nodeLinksBytesPerSecond = 0;
  /// Compute units of a device (streaming multiprocessors, cores), and thread blocks of a collective, one per unit. If
  /// there are 0 units, kernels and collectives share nothing, and collectives share links only.
  int64_t computeUnits = 0, ctas = 0;
  /// Bytes that a collective moves through memory for every byte on a link, permille.
  int64_t trafficPermille = 0;
  int64_t vectorUnitsPermille = kVectorUnitsPermille;
  /// What was measured of two collectives at once. It precedes what follows from the rates of links.
  std::vector<ShareEntry> shares = {};
};

/// Which groups share a communication lane, on which collectives are carried out one after the other.
enum class LaneSharing {
  /// Each group has a lane of its own.
  PerGroup,
  /// Groups within nodes share one lane, because they use the same links; groups across nodes share another one.
  PerLink,
  /// All groups share one lane.
  One
};

/// A machine. Plain data; only parse() checks it.
class MachineModel {
public:
  /// Reads a profile: by path if `nameOrPath` has a '/' or ends in ".json", or else by name in the directories of
  /// searchPath(). The error names the file and the field.
  static llvm::Expected<MachineModel> load(llvm::StringRef nameOrPath);
  /// Reads a profile from text. `file` is its name in errors.
  static llvm::Expected<MachineModel> parse(llvm::StringRef json, llvm::StringRef file = "<string>");

  /// The directories searched for a name, in order: the environment variable COMMSCHED_MACHINE_PATH (separated by ':'),
  /// share/commsched/machines beside the running program, the installation, and the source tree.
  static std::vector<std::string> searchPath();
  /// Names of all profiles on the search path, sorted, without duplicates.
  static std::vector<std::string> available();

  /// The profile as canonical JSON: sorted keys, two blanks of indentation, and the shortest digits that read back
  /// exactly. Parsing and printing it again gives the same text. The key `$schema` is left out: it names a place
  /// relative to the file.
  std::string toJSON() const;

  /// Whether any measured point or operation has an error bar.
  bool hasErrorBars() const;

  /// Operations per second of the matrix units at large sizes. Falls back to a wider type if the profile gives none.
  int64_t matrixRate(ElementType type) const;
  /// Operations that a matrix product loses to its start and end, at that rate (see halfFlops).
  int64_t matrixHalfFlops(ElementType type) const;
  /// Operations per second of the matrix units while all of them compute: the peak, with the same fall-backs.
  int64_t matrixPeak(ElementType type) const;
  /// Operations per second of all other units.
  int64_t vectorRate(ElementType type) const;

  std::string name;
  std::string description;

  /// Ranks of one node. Ranks are node-major: rank r is on node r / ranksPerNode.
  int64_t ranksPerNode = 1;

  /// The levels outside of nodes, the innermost first. The ranks of each are a multiple of those of the one before, and
  /// of a node. Beyond the last one, and without any, the links between nodes reach everywhere.
  std::vector<OuterLevel> levels;

  /// Memory of one rank, bytes.
  Bytes memoryCapacity = 0;
  /// Bandwidth that kernels reach (peak x efficiency), bytes per second.
  int64_t memoryBytesPerSecond = 0;

  /// Peak and sustained rates of the matrix units, and rates of the vector units.
  RateTable peakRates{}, sustainedRates{}, vectorRates{};
  /// Operations of a matrix product that reaches half of the sustained rate (Hockney's n 1/2), by element type. A
  /// product takes as long as one with so many operations more at the full rate. 0 if the profile has none.
  RateTable halfFlops{};
  /// Waves of tiles; none if the profile does not say, in which case a product costs its operations only.
  std::optional<MatrixTiles> tiles;
  /// Time of every kernel in addition to its roofline, ns.
  Ns launch = 0;

  /// Kernels that pack or unpack: fixed cost, and bandwidth over bytes read plus bytes written.
  Ns copyLaunch = 0;
  int64_t copyBytesPerSecond = 0;

  /// Time of the compute lane to issue a collective, ns.
  Ns issue = 0;
  /// Times of the calls that record an event and that make a stream wait for one, and of a hop from one stream to
  /// another, ns. No model uses them yet.
  Ns record = 0, wait = 0, hop = 0;
  /// Which groups communicate one after the other: what the profile says, and what holds. The latter is PerGroup if the
  /// profile says what two collectives on one link do to each other.
  LaneSharing givenLanes = LaneSharing::PerGroup, lanes = LaneSharing::PerGroup;

  /// Fixed cost of a collective of the alpha-beta model, ns.
  Ns collectiveBase = 0;
  LinkClass intra, inter;

  std::optional<NcclParameters> nccl;
  std::vector<CollectiveTable> collectives;
  std::vector<OpTime> ops;
  /// Resources that activities share (ContentionModel); none if the profile does not say.
  std::optional<MachineResources> resources;
  std::vector<ContentionEntry> contention;
  /// Of one kind, names differ.
  std::vector<CollectiveVariant> variants;

private:
  /// The profile as it was read.
  llvm::json::Value document = nullptr;
};

} // namespace commsched

#endif // COMMSCHED_MACHINE_MACHINEMODEL_H
