//===- MachineProfile.cpp - Reader and printer of machine profiles ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The JSON format of machine profiles, MachineModel.md. Reading is strict: an unknown, missing or ill-typed field
// is an error that names the file and the field, because a misspelt number would silently become a wrong schedule.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/MachineModel.h"
#include "CommSched/Support/Arithmetic.h"
#include "CommSched/Support/Demand.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/raw_ostream.h"
#include <charconv>
#include <cmath>

using namespace commsched;
namespace json = llvm::json;

namespace {

/// Version of the format that this reader accepts.
constexpr int64_t kSchemaVersion = 1;
/// 1 GB/s and 1 TFLOP/s in base units. Profiles use decimal units, as data sheets do.
constexpr double kGiga = 1e9, kTera = 1e12;
/// Largest rate and bandwidth in a profile, per second: 1e18 fits int64_t with room for the sums of a roofline.
constexpr double kMaxRate = 1e18;
/// Largest integer in a profile; doubles represent all integers up to it exactly.
constexpr int64_t kMaxInteger = int64_t(1) << 53;
/// Largest slow-down, permille: a thousand times longer.
constexpr int64_t kMaxSlowdownPermille = 1000000;
/// Largest `traffic_permille`.
constexpr int64_t kMaxTrafficPermille = 100000;

/// One object of the document, its path, and the first error of the whole document.
class Reader {
public:
  Reader(const json::Object &object, std::string path, std::string &error)
      : object(object), path(std::move(path)), error(error) {}

  explicit operator bool() const { return error.empty(); }

  /// Records an error, if it is the first one.
  void fail(llvm::StringRef key, const llvm::Twine &message) {
    if (error.empty())
      error = ("field '" + llvm::Twine(path) + key + "': " + message).str();
  }

  /// Rejects keys outside of `known`. Every object may have "source" and "note", which name the source of its numbers.
  void only(llvm::ArrayRef<llvm::StringRef> known) {
    // Visits the keys in sorted order, so that the same profile always gives the same error.
    std::vector<llvm::StringRef> keys;
    for (const auto &entry : object)
      keys.push_back(entry.first);
    llvm::sort(keys);
    for (llvm::StringRef key : keys) {
      if (key == "source" || key == "note") {
        if (!object.getString(key))
          fail(key, "expected a string");
      } else if (!llvm::is_contained(known, key)) {
        fail(key, "unknown field");
      }
    }
  }

  bool has(llvm::StringRef key) const { return object.get(key); }
  bool isObject(llvm::StringRef key) const { return object.getObject(key); }

  std::string string(llvm::StringRef key, std::optional<llvm::StringRef> fallback = std::nullopt) {
    if (!has(key) && fallback)
      return fallback->str();
    std::optional<llvm::StringRef> value = object.getString(key);
    if (!value || value->empty())
      fail(key, "expected a non-empty string");
    return value.value_or("").str();
  }

  /// A positive number, or a non-negative one if `zero` is set.
  double number(llvm::StringRef key, bool zero, double scale, std::optional<double> fallback = std::nullopt) {
    if (!has(key) && fallback)
      return *fallback;
    std::optional<double> value = object.getNumber(key);
    if (!value || !(zero ? *value >= 0 : *value > 0))
      fail(key, zero ? "expected a non-negative number" : "expected a positive number");
    else if (!(*value * scale <= kMaxRate))
      fail(key, "too large");
    return value.value_or(0);
  }

  /// A number in giga- or tera-units as an integer per second, at least 1.
  int64_t rate(llvm::StringRef key, double unit, std::optional<double> fallback = std::nullopt) {
    double value = number(key, /*zero=*/false, unit, fallback) * unit;
    return error.empty() ? std::max<int64_t>(1, std::llround(value)) : 1;
  }

  int64_t integer(llvm::StringRef key, int64_t least, std::optional<int64_t> fallback = std::nullopt,
                  int64_t most = kMaxInteger) {
    if (!has(key) && fallback)
      return *fallback;
    std::optional<int64_t> value = object.getInteger(key);
    if (!value || *value < least || *value > kMaxInteger)
      fail(key, "expected an integer of at least " + llvm::Twine(least));
    else if (*value > most)
      fail(key, "expected at most " + llvm::Twine(most) + ", got " + llvm::Twine(*value));
    return std::min(value.value_or(least), most);
  }

  /// A slow-down in permille; 0 if missing.
  int32_t permille(llvm::StringRef key) { return static_cast<int32_t>(integer(key, 0, 0, kMaxSlowdownPermille)); }

  /// The part of a peak that kernels reach, in permille; all of it if missing.
  int64_t efficiency() { return integer("efficiency_permille", 1, kPermille, kPermille); }

  /// The object at `key`. Reports an error and returns an empty object if there is none.
  Reader child(llvm::StringRef key) {
    static const json::Object none;
    const json::Object *value = object.getObject(key);
    if (!value)
      fail(key, "expected an object");
    return Reader(value ? *value : none, (path + key + ".").str(), error);
  }

  /// The strings of the array at `key`, which may be missing.
  std::vector<std::string> strings(llvm::StringRef key) {
    std::vector<std::string> result;
    const json::Array *array = object.getArray(key);
    if (has(key) && !array)
      fail(key, "expected an array of strings");
    for (const json::Value &element : array ? *array : json::Array())
      if (std::optional<llvm::StringRef> text = element.getAsString())
        result.push_back(text->str());
      else
        fail(key, "expected an array of strings");
    return result;
  }

  /// The error bar [lo_ns, hi_ns] around `ns`: zeros if there is none. An end that is missing is `ns`.
  std::pair<Ns, Ns> errorBar(Ns ns) {
    if (!has("lo_ns") && !has("hi_ns"))
      return {0, 0};
    Ns lo = integer("lo_ns", 0, ns), hi = integer("hi_ns", 0, ns);
    if (lo > ns)
      fail("lo_ns", "expected at most 'ns' (" + llvm::Twine(ns) + "), got " + llvm::Twine(lo));
    if (hi < ns)
      fail("hi_ns", "expected at least 'ns' (" + llvm::Twine(ns) + "), got " + llvm::Twine(hi));
    return {lo, hi};
  }

  /// Calls `visit` with every element of the array at `key`, which may be missing.
  void each(llvm::StringRef key, llvm::function_ref<void(Reader)> visit) {
    if (!has(key))
      return;
    const json::Array *array = object.getArray(key);
    if (!array)
      return fail(key, "expected an array");
    for (auto [index, element] : llvm::enumerate(*array)) {
      std::string where = (key + "[" + llvm::Twine(index) + "]").str();
      const json::Object *value = element.getAsObject();
      if (!value)
        return fail(where, "expected an object");
      visit(Reader(*value, path + where + ".", error));
    }
  }

  const json::Object &object;

private:
  std::string path;
  std::string &error;
};

/// Reads a table of rates in TFLOP/s; its keys are element types.
void readRates(Reader compute, llvm::StringRef key, RateTable &rates) {
  if (!compute.has(key))
    return;
  Reader table = compute.child(key);
  std::vector<llvm::StringRef> types;
  for (unsigned type = 0; type < kNumElementTypes; ++type) {
    llvm::StringRef name = stringify(static_cast<ElementType>(type));
    types.push_back(name);
    if (table.has(name))
      rates[type] = table.rate(name, kTera);
  }
  table.only(types);
}

MatrixTiles readTiles(Reader entry) {
  // The largest tile, number of units and depth, by far.
  constexpr int64_t kMost = 1 << 20;
  entry.only({"units", "depth", "sizes"});
  MatrixTiles tiles;
  tiles.units = entry.integer("units", 1, std::nullopt, kMost);
  tiles.depth = entry.integer("depth", 0, 0, kMost);
  entry.each("sizes", [&](Reader size) {
    size.only({"rows", "columns", "permille"});
    tiles.sizes.push_back({size.integer("rows", 1, std::nullopt, kMost),
                           size.integer("columns", 1, std::nullopt, kMost),
                           size.integer("permille", 1, kPermille, kPermille)});
  });
  if (tiles.sizes.empty())
    entry.fail("sizes", "expected at least one size");
  return tiles;
}

void readCompute(Reader compute, MachineModel &machine) {
  compute.only({"peak_tflops", "sustained_tflops", "vector_tflops", "half_flops", "matmul_tiles", "efficiency_permille",
                "launch_ns"});
  if (!compute.has("peak_tflops"))
    compute.fail("peak_tflops", "expected an object, got none");
  readRates(compute, "peak_tflops", machine.peakRates);
  readRates(compute, "sustained_tflops", machine.sustainedRates);
  readRates(compute, "vector_tflops", machine.vectorRates);
  if (!machine.peakRates[static_cast<unsigned>(ElementType::F32)])
    compute.fail("peak_tflops.f32", "expected a rate, got none");
  int64_t efficiency = compute.efficiency();
  for (auto [peak, sustained] : llvm::zip(machine.peakRates, machine.sustainedRates))
    if (peak && !sustained)
      sustained = std::max<int64_t>(1, peak / 1000 * efficiency);
  machine.launch = compute.integer("launch_ns", 0, 0);
  if (compute.has("matmul_tiles"))
    machine.tiles = readTiles(compute.child("matmul_tiles"));
  if (!compute.has("half_flops"))
    return;
  Reader half = compute.child("half_flops");
  std::vector<llvm::StringRef> types;
  for (unsigned type = 0; type < kNumElementTypes; ++type) {
    types.push_back(stringify(static_cast<ElementType>(type)));
    machine.halfFlops[type] = half.integer(types.back(), 0, 0);
  }
  half.only(types);
}

LinkClass readLink(Reader link) {
  link.only({"type", "bandwidth_gbps", "latency_ns", "message_ns"});
  LinkClass result;
  link.string("type", llvm::StringRef("link"));
  result.bytesPerSecond = link.rate("bandwidth_gbps", kGiga);
  result.latency = link.integer("latency_ns", 0);
  result.message = link.integer("message_ns", 0, 0);
  return result;
}

/// Reads the levels outside of nodes.
void readLevels(Reader &root, MachineModel &machine) {
  // What was read before may be wrong, which the error says.
  int64_t below = std::max<int64_t>(1, machine.ranksPerNode);
  root.each("levels", [&](Reader entry) {
    entry.only({"name", "ranks", "links"});
    OuterLevel level{entry.string("name"), entry.integer("ranks", 1), readLink(entry.child("links"))};
    if (machine.levels.size() == kMostOuterLevels)
      return entry.fail("name", "expected at most " + llvm::Twine(kMostOuterLevels) + " levels outside of nodes");
    if (level.ranks <= below || level.ranks % below != 0)
      entry.fail("ranks", "expected a multiple of the " + llvm::Twine(below) +
                              " ranks of the level below, larger than it, got " + llvm::Twine(level.ranks));
    if (level.name == "node" ||
        llvm::any_of(machine.levels, [&](const OuterLevel &other) { return other.name == level.name; }))
      entry.fail("name", "there is another level '" + level.name + "'");
    below = std::max<int64_t>(1, level.ranks);
    machine.levels.push_back(std::move(level));
  });
}

NcclGraph readGraph(Reader nccl, llvm::StringRef key, bool required) {
  NcclGraph graph;
  if (!required && !nccl.has(key))
    return graph;
  Reader reader = nccl.child(key);
  reader.only({"channels", "channel_gbps"});
  graph.channels = reader.integer("channels", 1);
  graph.channelGBps = reader.number("channel_gbps", /*zero=*/false, kGiga);
  return graph;
}

NcclParameters readNccl(Reader nccl) {
  nccl.only({"generation", "cpu", "ring", "nvls", "rail", "nvls_rail", "net_latency_us"});
  NcclParameters result;
  std::string generation = nccl.string("generation");
  auto parsed = llvm::StringSwitch<std::optional<NcclGeneration>>(generation)
                    .Case("volta", NcclGeneration::Volta)
                    .Case("ampere", NcclGeneration::Ampere)
                    .Case("hopper", NcclGeneration::Hopper)
                    .Case("blackwell", NcclGeneration::Blackwell)
                    .Default(std::nullopt);
  if (!parsed)
    nccl.fail("generation", "expected one of volta, ampere, hopper, blackwell");
  result.generation = parsed.value_or(NcclGeneration::Ampere);
  std::string cpu = nccl.string("cpu", llvm::StringRef("intel"));
  if (cpu != "intel" && cpu != "amd")
    nccl.fail("cpu", "expected one of intel, amd");
  result.cpu = cpu == "amd" ? NcclCpu::Amd : NcclCpu::Intel;
  result.ring = readGraph(nccl, "ring", /*required=*/true);
  result.nvls = readGraph(nccl, "nvls", /*required=*/false);
  result.rail = readGraph(nccl, "rail", /*required=*/true);
  result.nvlsRail = readGraph(nccl, "nvls_rail", /*required=*/false);
  result.netLatencyUs = nccl.number("net_latency_us", /*zero=*/true, 1, 0.0);
  return result;
}

CollectiveKind readKind(Reader entry) {
  std::optional<CollectiveKind> kind = parseCollectiveKind(entry.string("kind"));
  if (!kind)
    entry.fail("kind", "expected a kind of collective, such as all_gather");
  return kind.value_or(CollectiveKind::AllReduce);
}

/// A table of its own kind, or of `kind`, which it then does not repeat.
CollectiveTable readCollective(Reader entry, std::optional<CollectiveKind> kind = std::nullopt) {
  llvm::SmallVector<llvm::StringRef> known = {"group", "ranks", "nodes", "element", "points", "flags"};
  if (!kind)
    known.push_back("kind");
  entry.only(known);
  CollectiveTable table;
  table.kind = kind ? *kind : readKind(entry);
  if (entry.has("group")) {
    table.group = entry.string("group");
  } else {
    table.ranks = entry.integer("ranks", 2);
    table.nodes = entry.integer("nodes", 1);
    if (table.nodes > table.ranks)
      entry.fail("nodes",
                 "expected at most 'ranks' (" + llvm::Twine(table.ranks) + "), got " + llvm::Twine(table.nodes));
  }
  std::string element = entry.string("element", llvm::StringRef("any"));
  if (element != "any") {
    table.element = parseElementType(element);
    if (!table.element)
      entry.fail("element", "expected an element type, such as bf16, or any");
  }
  entry.each("points", [&](Reader point) {
    point.only({"bytes", "ns", "lo_ns", "hi_ns", "n", "rejected", "single_ns"});
    MeasuredPoint value;
    value.bytes = point.integer("bytes", 0);
    value.ns = point.integer("ns", 1);
    std::tie(value.lo, value.hi) = point.errorBar(value.ns);
    value.n = point.integer("n", 0, 0);
    value.rejected = point.integer("rejected", 0, 0);
    if (!table.points.empty() && value.bytes <= table.points.back().bytes)
      point.fail("bytes", "expected more bytes than at the previous point");
    table.points.push_back(value);
  });
  if (table.points.empty())
    entry.fail("points", "expected at least one point");
  table.flags = entry.strings("flags");
  return table;
}

OpTime readOp(Reader entry) {
  entry.only({"name", "shapes", "form", "ns", "lo_ns", "hi_ns", "n"});
  OpTime op;
  op.name = entry.string("name");
  op.ns = entry.integer("ns", 0);
  std::tie(op.lo, op.hi) = entry.errorBar(op.ns);
  op.n = entry.integer("n", 0, 0);
  op.shapes = entry.strings("shapes");
  op.form = entry.string("form", "");
  return op;
}

/// An entry of its own kind, or of `variant`, whose kind and thread blocks it then does not repeat.
ContentionEntry readContention(Reader entry, const CollectiveVariant *variant = nullptr) {
  llvm::SmallVector<llvm::StringRef> known = {"bytes", "against", "compute_permille", "collective_permille", "flags"};
  if (!variant)
    known.append({"kind", "ctas"});
  entry.only(known);
  ContentionEntry result;
  result.kind = variant ? variant->kind : readKind(entry);
  result.bytes = entry.integer("bytes", 0);
  result.ctas = variant ? variant->name.ctas : entry.integer("ctas", 0, 0);
  std::string against = entry.string("against");
  if (against != "matrix" && against != "memory")
    entry.fail("against", "expected one of matrix, memory");
  result.against = against == "memory" ? Against::Memory : Against::Matrix;
  result.computePermille = entry.permille("compute_permille");
  result.collectivePermille = entry.permille("collective_permille");
  return result;
}

/// The fields that both forms of a share have.
ShareEntry readShareOf(Reader &entry) {
  ShareEntry result;
  result.kind = readKind(entry);
  result.bytes = entry.integer("bytes", 0);
  result.acrossNodes = entry.integer("nodes", 1) > 1;
  return result;
}

ShareEntry readShare(Reader entry) {
  entry.only({"kind", "bytes", "ranks", "nodes", "permille"});
  ShareEntry result = readShareOf(entry);
  entry.integer("ranks", 1, 1);
  int64_t permille = entry.integer("permille", kPermille / 2, std::nullopt, kPermille);
  result.part = static_cast<int32_t>(permille * (kWhole / kPermille));
  return result;
}

/// What calibrations say of two collectives at once, and what counts in profiles without `resources.shares`, as version
/// 0.2 wrote them: two of a part take as much longer than one as was measured, but no longer than one after the other.
ShareEntry readPair(Reader entry) {
  entry.only({"kind", "bytes", "ranks", "nodes", "beside_ranks", "beside_nodes", "alone_ns", "beside_alone_ns",
              "both_ns", "both_lo_ns", "both_hi_ns", "permille"});
  ShareEntry result = readShareOf(entry);
  int64_t permille = entry.permille("permille");
  result.part = static_cast<int32_t>(std::min<int64_t>(kWhole, (kPermille + permille) * (kWhole / kPermille) / 2));
  return result;
}

/// Whether copy engines can carry out a kind: what is received is what was sent.
bool onlyMoves(CollectiveKind kind) {
  return kind != CollectiveKind::AllReduce && kind != CollectiveKind::ReduceScatter && kind != CollectiveKind::Reduce;
}

CollectiveVariant readVariant(Reader entry, const MachineModel &machine) {
  entry.only({"kind", "means", "ctas", "time_permille", "latency_ns", "curves", "contention"});
  CollectiveVariant variant;
  variant.kind = readKind(entry);
  std::string means = entry.string("means");
  auto parsed = llvm::StringSwitch<std::optional<VariantName::Means>>(means)
                    .Case("ring", VariantName::Ring)
                    .Case("copy_engine", VariantName::CopyEngine)
                    .Case("symmetric", VariantName::Symmetric)
                    .Default(std::nullopt);
  if (!parsed)
    entry.fail("means", "expected one of ring, copy_engine, symmetric");
  variant.name = {parsed.value_or(VariantName::Ring), entry.integer("ctas", 0, 0)};
  if (parsed == VariantName::CopyEngine && !onlyMoves(variant.kind))
    entry.fail("means", "copy engines cannot reduce, so they carry out no " + stringify(variant.kind));
  if (parsed && !variant.name.isValid())
    entry.fail("ctas", parsed == VariantName::CopyEngine
                           ? llvm::Twine("expected none, since copy engines take no thread blocks")
                           : "expected 1 to " + llvm::Twine(kMaxCtas) + ", got " + llvm::Twine(variant.name.ctas));
  if (llvm::any_of(machine.variants, [&](const CollectiveVariant &other) {
        return other.kind == variant.kind && other.name == variant.name;
      }))
    entry.fail("means", "there is another variant " + variant.name.text() + " of " + stringify(variant.kind));
  variant.timePermille = entry.integer("time_permille", 1, kPermille);
  if (variant.timePermille > kMaxSlowdownPermille)
    entry.fail("time_permille",
               "expected at most " + llvm::Twine(kMaxSlowdownPermille) + ", got " + llvm::Twine(variant.timePermille));
  variant.latency = entry.integer("latency_ns", 0, 0);
  entry.each("curves", [&](Reader curve) { variant.curves.push_back(readCollective(curve, variant.kind)); });
  entry.each("contention", [&](Reader own) { variant.contention.push_back(readContention(own, &variant)); });
  if (!variant.contention.empty() && !machine.resources && machine.contention.empty())
    entry.fail("contention", "expected a profile with contention or resources");
  return variant;
}

MachineResources readResources(Reader entry, const MachineModel &machine) {
  entry.only({"compute_units", "ctas", "traffic_permille", "vector_units_permille", "network", "node_links", "shares"});
  MachineResources result;
  entry.each("shares", [&](Reader share) { result.shares.push_back(readShare(share)); });
  bool namesLinks = entry.has("compute_units") || entry.has("network") || entry.has("node_links");
  auto readRate = [&](llvm::StringRef key, int64_t otherwise) {
    if (!entry.has(key))
      return otherwise;
    Reader named = entry.child(key);
    named.only({"bandwidth_gbps"});
    return named.rate("bandwidth_gbps", kGiga);
  };
  if (namesLinks) {
    result.networkBytesPerSecond = readRate("network", machine.inter.bytesPerSecond);
    result.nodeLinksBytesPerSecond = readRate("node_links", machine.intra.bytesPerSecond);
  }
  if (!entry.has("compute_units")) {
    if (!namesLinks && !entry.has("shares"))
      entry.fail("compute_units", "expected compute units, the rate of network or node_links, or shares");
    for (llvm::StringRef key : {"ctas", "traffic_permille", "vector_units_permille"})
      if (entry.has(key))
        entry.fail(key, "expected compute_units beside it");
    return result;
  }
  result.computeUnits = entry.integer("compute_units", 1);
  result.ctas = entry.integer("ctas", 0, machine.nccl ? machine.nccl->ring.channels : 0);
  result.trafficPermille = entry.integer("traffic_permille", 0, kTrafficPermille, kMaxTrafficPermille);
  result.vectorUnitsPermille = entry.integer("vector_units_permille", 0, kVectorUnitsPermille, kPermille);
  return result;
}

LaneSharing readLanes(Reader &root) {
  std::string lanes = root.string("lanes", llvm::StringRef("per_group"));
  if (lanes == "one")
    return LaneSharing::One;
  if (lanes == "per_link")
    return LaneSharing::PerLink;
  if (lanes != "per_group")
    root.fail("lanes", "expected one of per_group, per_link, one");
  return LaneSharing::PerGroup;
}

void readMachine(Reader root, MachineModel &machine) {
  root.only({"$schema", "schema_version", "name", "description", "node", "memory", "compute", "copy", "overheads",
             "lanes", "links", "levels", "nccl", "resources", "collectives", "ops", "contention", "variants",
             "calibration"});
  root.string("$schema", llvm::StringRef(""));
  if (root.integer("schema_version", 1) != kSchemaVersion)
    root.fail("schema_version", "expected " + llvm::Twine(kSchemaVersion));
  machine.name = root.string("name");
  machine.description = root.string("description", llvm::StringRef(""));

  Reader node = root.child("node");
  node.only({"ranks"});
  machine.ranksPerNode = node.integer("ranks", 1);

  Reader memory = root.child("memory");
  memory.only({"capacity_bytes", "bandwidth_gbps", "efficiency_permille"});
  machine.memoryCapacity = memory.integer("capacity_bytes", 1);
  int64_t peakBandwidth = memory.rate("bandwidth_gbps", kGiga);
  machine.memoryBytesPerSecond = std::max<int64_t>(1, peakBandwidth / 1000 * memory.efficiency());

  readCompute(root.child("compute"), machine);

  Reader copy = root.child("copy");
  copy.only({"launch_ns", "bandwidth_gbps"});
  machine.copyLaunch = copy.integer("launch_ns", 0);
  machine.copyBytesPerSecond = copy.rate("bandwidth_gbps", kGiga);

  if (root.has("overheads")) {
    Reader overheads = root.child("overheads");
    overheads.only({"issue_ns", "record_ns", "wait_ns", "hop_ns"});
    machine.issue = overheads.integer("issue_ns", 0, 0);
    machine.record = overheads.integer("record_ns", 0, 0);
    machine.wait = overheads.integer("wait_ns", 0, 0);
    machine.hop = overheads.integer("hop_ns", 0, 0);
  }
  machine.givenLanes = machine.lanes = readLanes(root);

  Reader links = root.child("links");
  links.only({"base_ns", "intra", "inter"});
  machine.collectiveBase = links.integer("base_ns", 0);
  machine.intra = readLink(links.child("intra"));
  machine.inter = links.has("inter") ? readLink(links.child("inter")) : machine.intra;

  readLevels(root, machine);
  if (root.has("nccl"))
    machine.nccl = readNccl(root.child("nccl"));
  if (root.has("resources"))
    machine.resources = readResources(root.child("resources"), machine);
  root.each("collectives", [&](Reader entry) { machine.collectives.push_back(readCollective(entry)); });
  root.each("ops", [&](Reader entry) { machine.ops.push_back(readOp(entry)); });
  root.each("contention", [&](Reader entry) { machine.contention.push_back(readContention(entry)); });
  root.each("variants", [&](Reader entry) { machine.variants.push_back(readVariant(entry, machine)); });
  // The rest of the calibration is for people.
  std::vector<ShareEntry> pairs;
  if (root.isObject("calibration"))
    root.child("calibration").each("pairs", [&](Reader entry) { pairs.push_back(readPair(entry)); });
  if (!pairs.empty() && !machine.resources)
    machine.resources.emplace();
  if (machine.resources && machine.resources->shares.empty())
    machine.resources->shares = std::move(pairs);
  // Lanes of their own let collectives on one link meet, so that what they do to each other shows.
  bool isMeasured = machine.resources && !machine.resources->shares.empty();
  bool meetOnLinks = isMeasured || (machine.resources && machine.resources->computeUnits > 0);
  if (isMeasured || (machine.lanes == LaneSharing::PerLink && meetOnLinks))
    machine.lanes = LaneSharing::PerGroup;
}

/// Prints a value with sorted keys and the shortest digits that read back exactly.
void print(json::OStream &stream, const json::Value &value) {
  if (const json::Object *object = value.getAsObject()) {
    std::vector<llvm::StringRef> keys;
    for (const auto &entry : *object)
      keys.push_back(entry.first);
    llvm::sort(keys);
    stream.object([&] {
      for (llvm::StringRef key : keys) {
        stream.attributeBegin(key);
        print(stream, *object->get(key));
        stream.attributeEnd();
      }
    });
  } else if (const json::Array *array = value.getAsArray()) {
    stream.array([&] {
      for (const json::Value &element : *array)
        print(stream, element);
    });
  } else if (value.kind() == json::Value::Number && !value.getAsInteger()) {
    char digits[32];
    auto [end, status] = std::to_chars(digits, digits + sizeof(digits), *value.getAsNumber());
    (void)status;
    stream.rawValue(llvm::StringRef(digits, end - digits));
  } else {
    stream.value(value);
  }
}

} // namespace

llvm::Expected<MachineModel> MachineModel::parse(llvm::StringRef text, llvm::StringRef file) {
  auto failure = [&](const llvm::Twine &message) {
    return llvm::createStringError(llvm::inconvertibleErrorCode(), "machine '" + file + "': " + message);
  };
  llvm::Expected<json::Value> document = json::parse(text);
  if (!document)
    return failure(llvm::toString(document.takeError()));
  const json::Object *object = document->getAsObject();
  if (!object)
    return failure("expected a JSON object");
  MachineModel machine;
  std::string error;
  readMachine(Reader(*object, "", error), machine);
  if (!error.empty())
    return failure(error);
  // The place of the schema, for editors: it depends on where the file is, and is not part of the machine.
  document->getAsObject()->erase("$schema");
  machine.document = std::move(*document);
  return machine;
}

std::string MachineModel::toJSON() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  json::OStream stream(os, /*IndentSize=*/2);
  print(stream, document);
  os << '\n';
  return text;
}
