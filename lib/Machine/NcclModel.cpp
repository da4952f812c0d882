//===- NcclModel.cpp - NCCL's analytic tuning model -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// NCCL predicts the time of a collective for each algorithm and protocol as latency + bytes / bandwidth and takes the
// smallest. This file has that model, after NCCL 2.28.9 (src/graph/tuning.cc; the comments give the names of its
// tables), without the algorithms that need SHARP network switches. Latencies are in µs and bandwidths in GB/s as in
// NCCL. Each line is rounded once to ns and bytes per second, so all later computation uses integers.
//
//===------------------------------------------------------------------------------------------===//

#include "NcclModel.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <cmath>

using namespace commsched;
using namespace commsched::detail;

namespace {

enum Protocol { LL, LL128, Simple };
constexpr unsigned kNumProtocols = 3;
using PerProtocol = std::array<double, kNumProtocols>;
/// Indexed by number of nodes: one, two, more.
using PerNodes = std::array<double, 3>;

/// baseLatencies: latency of every launch.
constexpr PerProtocol kTreeBase = {6.8, 14.0, 8.4}, kRingBase = {6.6, 14.0, 8.4};
constexpr double kPatBase = 8.0;
/// hwLatencies, NVLink: latency of one hop inside a node.
constexpr PerProtocol kTreeNvlink = {0.6, 1.25, 4.0}, kRingNvlink = {0.6, 1.9, 3.4};
constexpr double kNvlsNvlink = 25.0;
/// hwLatencies, network: latency of one hop between nodes.
constexpr PerProtocol kTreeNet = {5.0, 8.5, 14.0}, kRingNet = {2.7, 4.0, 14.0};
constexpr double kNvlsTreeNet = 20.9;
/// PAT's latency: log2(nodes) x network / kPatPipelining + kPatPerRank x ranks.
constexpr double kPatPipelining = 3.5, kPatPerRank = 2.8;
/// getNetOverhead: cost of posting to the network, by the host's processor. The Simple protocol posts three times.
constexpr double kNetOverheadIntel = 1.0, kNetOverheadAmd = 2.0, kSimplePosts = 3.0;

/// llMaxBws: limit of the LL protocol, inside a node by GPU generation, between nodes by processor.
constexpr double kLLMaxInside[] = {39.0, 87.7, 141.0, 282.0};
constexpr double kLLMaxIntel[] = {39.0, 20.4}, kLLMaxAmd[] = {22.5, 19.0};
/// perChMaxRingLL128Bws, perChMaxTreeLL128Bws, perChMaxTreeBws, perChMaxNVLSTreeBws: limits of one channel.
constexpr PerNodes kRingLL128Max[] = {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}};
constexpr PerNodes kTreeLL128Max[] = {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}};
constexpr PerNodes kTreeMax[] = {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}};
constexpr PerNodes kNvlsTreeMax[] = {{0, 0, 0}, {0, 0, 0}, {0, 57.7, 45.5}, {0, 96, 43.8}};
/// nvlsEfficiency.
constexpr double kNvlsEfficiency[] = {0, 0, 0.85, 0.74};

/// Shares of the bus bandwidth that algorithms and protocols reach.
constexpr double kRingLL = 0.5, kRingLL128 = 0.92, kTree = 0.92, kTreeLL = 1 / 3.8, kTreeLL128OneNode = 7.0 / 9.0,
                 kTreeLL128 = 120.0 / 128.0, kPlainTree = 0.85, kPat = 0.75;
/// "Plateau effect of ring": the latency of a Simple all-reduce ring between nodes grows by this factor once every
/// channel and rank has kPlateauBytes.
constexpr double kPlateau = 1.4, kPlateauVolta = 1.9;
constexpr Bytes kPlateauBytes = 64;
/// NCCL uses lossless algorithms for 8-bit floats above this number of ranks.
constexpr int64_t kF8RingRanks = 8;
/// ncclTopoDupChannels: rings with a channel of at least this bandwidth are doubled; from Hopper on only if a channel
/// has 50 GB/s or there are at most four.
constexpr double kDupGBps = 25, kDupHopperGBps = 50;
constexpr int64_t kDupHopperChannels = 4;
/// NCCL_MAX_DEV_WORK_BATCH_COLLS: 1024 bytes of work descriptors of 96 bytes each.
constexpr int64_t kCollectivesPerBatch = 10;

/// treeCorrectionFactor, in tenths.
constexpr std::array<std::array<uint8_t, 23>, kNumProtocols> kTreeCorrection = {{
    {10, 10, 10, 10, 9, 8, 7, 7, 7, 7, 6, 5, 4, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10},
    {10, 10, 10, 10, 10, 9, 8, 8, 8, 7, 6, 6, 6, 6, 6, 6, 8, 9, 9, 9, 9, 10, 10},
    {9, 9, 9, 9, 9, 9, 9, 8, 7, 6, 6, 5, 5, 5, 5, 6, 7, 8, 7, 7, 8, 9, 9},
}};

constexpr llvm::StringLiteral kRingNames[] = {"Ring/LL", "Ring/LL128", "Ring/Simple"};
constexpr llvm::StringLiteral kTreeNames[] = {"Tree/LL", "Tree/LL128", "Tree/Simple"};

/// The rings of a group on `nodes` nodes with `perNode` ranks on each.
NcclGraph ringGraph(const NcclParameters &nccl, int64_t nodes, int64_t perNode) {
  if (nodes == 1)
    return nccl.ring;
  // Every rank of a node adds its own rail, if NVLink carries the sum.
  NcclGraph graph;
  graph.channels = nccl.rail.channels * perNode;
  graph.channelGBps = std::min(nccl.rail.channelGBps, nccl.ring.channels * nccl.ring.channelGBps / graph.channels);
  bool hopper = nccl.generation >= NcclGeneration::Hopper;
  if (graph.channelGBps >= kDupGBps &&
      !(hopper && graph.channelGBps < kDupHopperGBps && graph.channels > kDupHopperChannels)) {
    graph.channels *= 2;
    graph.channelGBps /= 2;
  }
  return graph;
}

int64_t ranksPerNodeRoundedDown(GroupShape shape) { return std::max<int64_t>(1, shape.ranks / shape.nodes); }

/// The model of one collective on one group.
class Model {
public:
  Model(const NcclParameters &nccl, CollectiveKind kind, GroupShape shape);
  std::vector<CostLine> candidates(ElementType element);

private:
  void addRing(Protocol protocol);
  void addTree(Protocol protocol);
  void addNvls();
  void addNvlsTree();
  void addPat();
  void add(llvm::StringRef name, double latencyUs, double algorithmGBps);

  /// Latency of a hop between nodes. The Simple protocol pays the network's own latency twice (flush).
  double interHop(double hop, Protocol protocol) const {
    return hop + nccl.netLatencyUs * (protocol == Simple ? 2 : 1);
  }
  bool isAllReduce() const { return kind == CollectiveKind::AllReduce; }
  bool isRooted() const { return kind == CollectiveKind::Broadcast || kind == CollectiveKind::Reduce; }

  const NcclParameters &nccl;
  CollectiveKind kind;
  unsigned generation;
  int64_t ranks, nodes;
  /// Ranks of a node, rounded down as NCCL does.
  int64_t perNode;
  /// Index by number of nodes into PerNodes.
  unsigned column;
  /// Steps of a ring, and how many of them cross nodes.
  int64_t steps, interSteps;
  /// Rings (and trees): channels, and bandwidth of one.
  NcclGraph graph;
  double bus;
  double llMax;
  std::vector<CostLine> lines;
};

Model::Model(const NcclParameters &nccl, CollectiveKind kind, GroupShape shape)
    : nccl(nccl), kind(kind), generation(static_cast<unsigned>(nccl.generation)), ranks(shape.ranks),
      nodes(shape.nodes), perNode(ranksPerNodeRoundedDown(shape)), column(std::min<int64_t>(shape.nodes, 3) - 1) {
  bool rooted = isRooted();
  steps = isAllReduce() ? 2 * (ranks - 1) : rooted ? ranks : ranks - 1;
  interSteps = nodes == 1 ? 0 : isAllReduce() ? 2 * (nodes - 1) : rooted ? nodes : nodes - 1;
  graph = ringGraph(nccl, nodes, perNode);
  bus = graph.channels * graph.channelGBps;
  llMax = nodes == 1 ? kLLMaxInside[generation] : (nccl.cpu == NcclCpu::Amd ? kLLMaxAmd : kLLMaxIntel)[column - 1];
}

void Model::add(llvm::StringRef name, double latencyUs, double algorithmGBps) {
  if (!(algorithmGBps > 0))
    return;
  CostLine line;
  line.name = name;
  line.latency = line.plateauLatency = std::llround(latencyUs * 1e3);
  line.bytesPerSecond = std::max<int64_t>(1, std::llround(algorithmGBps * 1e9));
  line.channels = std::max<int64_t>(1, graph.channels);
  line.batch = llvm::StringRef(name).starts_with("Ring") ? 1 : kCollectivesPerBatch;
  lines.push_back(line);
}

void Model::addRing(Protocol protocol) {
  double bandwidth = bus;
  if (protocol == LL)
    bandwidth = std::min(bus * kRingLL, llMax);
  else if (protocol == LL128)
    bandwidth = std::min(bus * kRingLL128, graph.channels * kRingLL128Max[generation][column]);
  double latency = kRingBase[protocol];
  if (isRooted()) {
    // Inside a node all channels follow one ring, and the data streams through it. Otherwise every step counts, and the
    // chunks of Simple make a step as long as a tree's.
    const PerProtocol &hop = nodes == 1 ? kRingNvlink : protocol == Simple ? kTreeNet : kRingNet;
    latency += nodes == 1 ? hop[protocol] : steps * hop[protocol];
  } else {
    double overhead = 0;
    if (nodes > 1)
      overhead =
          (nccl.cpu == NcclCpu::Amd ? kNetOverheadAmd : kNetOverheadIntel) * (protocol == Simple ? kSimplePosts : 1);
    // With one rank per node, nothing hides the network: NCCL counts the hop of a tree.
    double inter = interHop((perNode == 1 ? kTreeNet : kRingNet)[protocol], protocol);
    latency += (steps - interSteps) * std::max(kRingNvlink[protocol], overhead) + interSteps * inter;
  }
  add(kRingNames[protocol], latency, bandwidth * ranks / steps);
  if (isAllReduce() && protocol == Simple && nodes > 1 && !lines.empty()) {
    lines.back().plateauLatency =
        std::llround(latency * (nccl.generation == NcclGeneration::Volta ? kPlateauVolta : kPlateau) * 1e3);
    lines.back().plateauBytes = kPlateauBytes * graph.channels * ranks;
  }
}

void Model::addTree(Protocol protocol) {
  double bandwidth = std::min(bus * kTree, graph.channels * kTreeMax[generation][column]);
  if (protocol == LL)
    bandwidth = std::min(bandwidth * kTreeLL, llMax);
  else if (protocol == LL128)
    bandwidth = std::min(bandwidth * (nodes == 1 ? kTreeLL128OneNode : kTreeLL128),
                         graph.channels * kTreeLL128Max[generation][column]);
  if (perNode == 1) // NCCL finds only plain trees with one GPU.
    bandwidth *= kPlainTree;
  double inter = interHop(kTreeNet[protocol], protocol);
  double latency = kTreeBase[protocol] + 2 * ((perNode - 1) * kTreeNvlink[protocol] + llvm::Log2_64(nodes) * inter);
  add(kTreeNames[protocol], latency, bandwidth / 2);
  lines.back().correction = &kTreeCorrection[protocol];
}

void Model::addNvls() {
  // Inside a node only: between nodes, NCCL needs SHARP for it.
  if (nodes != 1 || nccl.nvls.channels < 2 || perNode <= 2)
    return;
  int64_t channels = nccl.nvls.channels;
  double bandwidth = nccl.nvls.channelGBps * kNvlsEfficiency[generation] * (channels - 1) / channels;
  bandwidth *= isAllReduce() ? 2.0 : (perNode - 1.0) / perNode;
  // NCCL 2.28.9 does not change the bandwidth of gathers and scatters.
  add("NVLS/Simple", kNvlsNvlink, bandwidth * channels * (isAllReduce() ? static_cast<double>(ranks) / steps : 1.0));
}

void Model::addNvlsTree() {
  if (nodes == 1 || nccl.nvlsRail.channels == 0 || perNode <= 2)
    return;
  int64_t channels = nccl.nvlsRail.channels * perNode;
  double intra = nccl.nvlsRail.channelGBps * kNvlsEfficiency[generation] * (channels - 1) / channels * 2;
  double inter = nccl.rail.channelGBps * (nodes == 2 ? 2 : 1);
  double bandwidth = std::min({intra, inter, kNvlsTreeMax[generation][column]});
  double latency = kNvlsNvlink + 2 * llvm::Log2_64(nodes) * interHop(kNvlsTreeNet, Simple);
  add("NVLSTree/Simple", latency, bandwidth * channels * ranks / steps);
}

void Model::addPat() {
  // One rank per node only.
  if (ranks != nodes)
    return;
  double latency =
      kPatBase + llvm::Log2_64(nodes) * interHop(kTreeNet[Simple], Simple) / kPatPipelining + kPatPerRank * ranks;
  add("PAT/Simple", latency, bus * kPat);
}

std::vector<CostLine> Model::candidates(ElementType element) {
  bool ring = !(isAllReduce() && element == ElementType::F8 && ranks > kF8RingRanks);
  for (Protocol protocol : {LL, LL128, Simple}) {
    if (ring)
      addRing(protocol);
    if (isAllReduce())
      addTree(protocol);
  }
  if (isAllReduce()) {
    addNvls();
    addNvlsTree();
  } else if (!isRooted()) {
    addNvls();
    addPat();
  }
  return std::move(lines);
}

} // namespace

int64_t detail::ncclChannels(const NcclParameters &nccl, GroupShape shape) {
  return std::max<int64_t>(1, ringGraph(nccl, shape.nodes, ranksPerNodeRoundedDown(shape)).channels);
}

std::vector<CostLine> detail::ncclCandidates(const NcclParameters &nccl, CollectiveKind kind, GroupShape shape,
                                             ElementType element) {
  switch (kind) {
  case CollectiveKind::AllGather:
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::AllReduce:
  case CollectiveKind::Broadcast:
  case CollectiveKind::Reduce:
    return Model(nccl, kind, shape).candidates(element);
  default:
    return {};
  }
}
