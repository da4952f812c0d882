//===- ProblemPrinter.cpp - Write a Problem as a program --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Computes become comm.compute. An edge between computes that no data carries becomes an operand of 0 bytes. A start
// has groups of one rank, so that its inputs have the sizes of its results; a "gate" of cost 0 in front of it views its
// buffers at these sizes and takes its edges. A compute that must follow a start or a wait that only reads one of its
// buffers is said to write that buffer. Dependences that result from all this are compared with the given ones.
//
//===------------------------------------------------------------------------------------------===//

#include "ProblemPrinter.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/raw_ostream.h"
#include <set>

using namespace commsched;

namespace {

/// Prints one problem.
class Printer {
public:
  explicit Printer(const Problem &problem)
      : problem(problem), os(body), values(problem.buffers.size()), hasToken(problem.size(), false),
        edges(problem.size()), lastWriter(problem.buffers.size(), kNone), readers(problem.buffers.size()),
        isWaitedFor(problem.size(), false) {}

  PrintedProblem run() {
    findTokens();
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id)
      if (problem.buffers[id].def == kNone)
        values[id] = "%a" + std::to_string(id);
    for (NodeId node = 0; node < problem.size(); ++node)
      print(node);
    compareDependences();
    compareLiveness();
    PrintedProblem result;
    llvm::raw_string_ostream text(result.text);
    for (const std::string &loss : losses)
      text << "// Not expressed: " << loss << "\n";
    for (LaneId lane = 1; lane < problem.numLanes(); ++lane)
      text << "comm.group " << symbol(lane) << " #comm.iota<[2, 1]>\n";
    text << "func.func @problem(%one: tensor<1xi8>";
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id)
      if (problem.buffers[id].def == kNone)
        text << ", " << values[id] << ": " << typeOf(id) << " {comm.donated}";
    printReturn(text);
    result.losses = std::move(losses);
    return result;
  }

private:
  static std::string tensor(Bytes bytes) { return "tensor<" + std::to_string(bytes) + "xi8>"; }
  std::string typeOf(BufferId id) const { return tensor(problem.buffers[id].bytes); }
  std::string symbol(LaneId lane) const {
    // A lane that several groups share has the names of all of them.
    llvm::StringRef name = llvm::StringRef(problem.laneNames[lane]).split(',').first;
    name.consume_front("@");
    return "@" + name.str();
  }
  static std::string name(char kind, NodeId node) { return std::string("%") + kind + std::to_string(node); }
  bool computes(NodeId node) const {
    return problem.nodes[node].kind == NodeKind::Compute || problem.nodes[node].kind == NodeKind::Hybrid;
  }
  void lose(NodeId node, const llvm::Twine &what) {
    losses.push_back((llvm::Twine("node ") + llvm::Twine(node) + ": " + what + ".").str());
  }

  /// A compute whose successor may need an edge that no data carries has a result of 0 bytes.
  void findTokens() {
    for (NodeId node = 0; node < problem.size(); ++node)
      for (NodeId pred : problem.preds[node])
        if (computes(pred))
          hasToken[pred] = true;
  }

  /// The buffers that a node touches and does not define, and those that it defines.
  void splitTouches(NodeId node, std::vector<BufferId> &read, std::vector<BufferId> &defined) const {
    for (BufferId id : problem.touches[node])
      (problem.buffers[id].def == node ? defined : read).push_back(id);
  }

  /// A value of a buffer for a user that follows `preds`: the result of the latest wait among them, if there is one.
  std::string valueFor(BufferId id, llvm::ArrayRef<NodeId> preds, NodeId &source) const {
    source = problem.buffers[id].def;
    if (source == kNone || problem.nodes[source].kind != NodeKind::Start)
      return values[id];
    std::vector<BufferId> inputs, outputs;
    splitTouches(source, inputs, outputs);
    size_t index = llvm::find(outputs, id) - outputs.begin();
    for (NodeId pred : llvm::reverse(preds))
      if (problem.nodes[pred].kind == NodeKind::Wait && problem.nodes[pred].start == source) {
        source = pred;
        return name('w', pred) + (outputs.size() > 1 ? "#" + std::to_string(index) : "");
      }
    return values[id];
  }

  /// The operands of a node: the buffers that it reads, then the edges that no data carries.
  struct Operands {
    std::vector<std::string> values, types;
    std::vector<size_t> mutated;
  };
  Operands operandsOf(NodeId node, llvm::ArrayRef<BufferId> read, bool mayWrite) {
    Operands result;
    llvm::ArrayRef<NodeId> preds = problem.preds[node];
    std::set<NodeId> carried;
    for (BufferId id : read) {
      NodeId source = kNone;
      result.values.push_back(valueFor(id, preds, source));
      result.types.push_back(typeOf(id));
      if (result.values.back().empty()) {
        lose(node, "it reads buffer " + llvm::Twine(id) + ", which no wait has made a value");
        result.values.back() = "%one", result.types.back() = tensor(1);
        continue;
      }
      if (source != kNone)
        carried.insert(source);
    }
    for (NodeId pred : preds) {
      if (carried.count(pred))
        continue;
      if (computes(pred)) {
        result.values.push_back(name('t', pred));
        result.types.push_back(tensor(0));
        carried.insert(pred);
        continue;
      }
      for (auto [index, id] : llvm::enumerate(read))
        if (mayWrite && llvm::is_contained(problem.touches[pred], id) && !llvm::is_contained(result.mutated, index))
          result.mutated.push_back(index);
    }
    llvm::append_range(edges[node], carried);
    for (auto [index, id] : llvm::enumerate(read))
      access(node, id, llvm::is_contained(result.mutated, index));
    return result;
  }

  /// Adds the edges that reading or writing a buffer gives.
  void access(NodeId node, BufferId id, bool writes) {
    if (lastWriter[id] != kNone)
      edges[node].push_back(lastWriter[id]);
    if (!writes)
      return readers[id].push_back(node);
    llvm::append_range(edges[node], readers[id]);
    readers[id].clear();
    lastWriter[id] = node;
  }

  void print(NodeId node) {
    const Node &info = problem.nodes[node];
    if (info.region != kNone)
      lose(node, "communication in its regions");
    if (info.unit != kNone)
      lose(node, "its unit");
    if (info.kind == NodeKind::Start && info.collective != CollectiveKind::Broadcast &&
        mnemonicOf(info.collective) == "comm.broadcast")
      lose(node, llvm::Twine("that it is a ") + stringify(info.collective));
    if (info.issue != 0)
      lose(node, "an issue cost of " + llvm::Twine(info.issue) + " ns, which is the machine's");
    switch (info.kind) {
    case NodeKind::Compute:
    case NodeKind::Hybrid:
      return printCompute(node);
    case NodeKind::Start:
      return printStart(node);
    case NodeKind::Wait:
      return printWait(node);
    }
  }

  void printAttributes(const Node &info) {
    os << " {comm.cost = #comm.cost<time = " << info.cost;
    if (info.workspace > 0)
      os << ", workspace = " << info.workspace;
    os << ">";
    if (info.kind == NodeKind::Hybrid)
      os << ", comm.hybrid = " << symbol(info.lane);
    if (info.pinned)
      os << ", comm.pinned";
    os << "}";
  }

  void printCompute(NodeId node) {
    std::vector<BufferId> read, defined;
    splitTouches(node, read, defined);
    Operands operands = operandsOf(node, read, /*mayWrite=*/true);
    std::vector<std::string> names, types;
    for (BufferId id : defined) {
      names.push_back(values[id] = "%b" + std::to_string(id));
      types.push_back(typeOf(id));
    }
    if (hasToken[node]) {
      names.push_back(name('t', node));
      types.push_back(tensor(0));
    }
    os << "  " << llvm::join(names, ", ") << (names.empty() ? "" : " = ") << "comm.compute \"node" << node << "\"("
       << llvm::join(operands.values, ", ") << ")";
    if (!operands.mutated.empty()) {
      os << " mutates [";
      llvm::interleaveComma(operands.mutated, os);
      os << "]";
    }
    printAttributes(problem.nodes[node]);
    os << " : (" << llvm::join(operands.types, ", ") << ") -> (" << llvm::join(types, ", ") << ")\n";
  }

  static llvm::StringRef mnemonicOf(CollectiveKind kind) {
    switch (kind) {
    case CollectiveKind::AllGather:
      return "comm.all_gather";
    case CollectiveKind::ReduceScatter:
      return "comm.reduce_scatter sum";
    case CollectiveKind::AllReduce:
      return "comm.all_reduce sum";
    case CollectiveKind::AllToAll:
      return "comm.all_to_all";
    default:
      return "comm.broadcast";
    }
  }

  void printStart(NodeId node) {
    const Node &info = problem.nodes[node];
    std::vector<BufferId> read, defined;
    splitTouches(node, read, defined);
    Operands operands = operandsOf(node, read, /*mayWrite=*/false);
    if (defined.empty()) {
      lose(node, "a start that has no result of its own");
      return;
    }
    if (read.size() > defined.size())
      lose(node, "a start with more inputs than results");
    // Results beyond the inputs view an argument that is live throughout.
    size_t viewed = std::min(read.size(), defined.size());
    operands.values.push_back("%one"), operands.types.push_back(tensor(1));
    std::vector<std::string> gates, types, aliases;
    for (size_t index = 0; index < defined.size(); ++index) {
      gates.push_back(name('g', node) + (defined.size() > 1 ? "_" + std::to_string(index) : ""));
      types.push_back(typeOf(defined[index]));
      aliases.push_back(std::to_string(index < viewed ? index : operands.values.size() - 1));
    }
    os << "  " << llvm::join(gates, ", ") << " = comm.compute \"gate\"(" << llvm::join(operands.values, ", ")
       << ") aliases [" << llvm::join(aliases, ", ") << "] {comm.cost = #comm.cost<time = 0>} : ("
       << llvm::join(operands.types, ", ") << ") -> (" << llvm::join(types, ", ") << ")\n";
    os << "  " << name('f', node) << " = " << mnemonicOf(info.collective) << " " << llvm::join(gates, ", ") << " on "
       << symbol(info.lane) << (mnemonicOf(info.collective) == "comm.broadcast" ? " root 0" : "");
    printAttributes(info);
    os << " : (" << llvm::join(types, ", ") << ") -> !comm.future<" << llvm::join(types, ", ") << ">\n";
    for (BufferId id : defined)
      access(node, id, /*writes=*/true);
  }

  void printWait(NodeId node) {
    const Node &info = problem.nodes[node];
    if (info.start == kNone || info.ready != 0) {
      lose(node, "a wait for a future that came in");
      return;
    }
    std::vector<BufferId> read, defined;
    splitTouches(info.start, read, defined);
    if (defined.empty())
      return;
    isWaitedFor[info.start] = true;
    std::vector<std::string> types;
    for (auto [index, id] : llvm::enumerate(defined)) {
      types.push_back(typeOf(id));
      values[id] = name('w', node) + (defined.size() > 1 ? "#" + std::to_string(index) : "");
    }
    os << "  " << name('w', node) << (defined.size() > 1 ? ":" + std::to_string(defined.size()) : "") << " = comm.wait "
       << name('f', info.start) << (info.pinned ? " {comm.pinned}" : "") << " : !comm.future<"
       << llvm::join(types, ", ") << ">\n";
    edges[node].push_back(info.start);
    for (BufferId id : problem.touches[node])
      access(node, id, /*writes=*/false);
  }

  /// Whether the function returns the future of a start: nothing waits for it, and a result is live at the end.
  bool isReturned(NodeId node) const {
    return problem.nodes[node].kind == NodeKind::Start && !isWaitedFor[node] &&
           llvm::any_of(problem.touches[node],
                        [&](BufferId id) { return problem.buffers[id].def == node && problem.buffers[id].liveOut; });
  }

  /// Lists the buffers that live longer in the program: an argument that is written is visible to the caller, and a
  /// future that is returned holds the inputs of its start.
  void compareLiveness() {
    llvm::BitVector visible(static_cast<unsigned>(problem.buffers.size()));
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id)
      if (problem.buffers[id].def == kNone && lastWriter[id] != kNone)
        visible.set(id);
    for (NodeId node = 0; node < problem.size(); ++node)
      if (isReturned(node))
        for (BufferId id : problem.touches[node])
          visible.set(id);
    for (unsigned id : visible.set_bits())
      if (!problem.buffers[id].liveOut)
        losses.push_back("buffer " + std::to_string(id) + ": that it is dead at the end.");
  }

  void printReturn(llvm::raw_ostream &text) {
    std::vector<std::string> names, types;
    for (NodeId node = 0; node < problem.size(); ++node) {
      if (!isReturned(node))
        continue;
      std::vector<BufferId> read, defined;
      splitTouches(node, read, defined);
      std::vector<std::string> parts;
      for (BufferId id : defined)
        parts.push_back(typeOf(id));
      names.push_back(name('f', node));
      types.push_back("!comm.future<" + llvm::join(parts, ", ") + ">");
    }
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id)
      if (problem.buffers[id].liveOut && !values[id].empty()) {
        names.push_back(values[id]);
        types.push_back(typeOf(id));
      }
    text << ") -> (" << llvm::join(types, ", ") << ") {\n"
         << body << "  return " << llvm::join(names, ", ") << (names.empty() ? "" : " : ") << llvm::join(types, ", ")
         << "\n}\n";
  }

  /// Indexed by node: its ancestors by `predsOf`.
  template <typename Function> std::vector<llvm::BitVector> ancestorsBy(Function predsOf) const {
    std::vector<llvm::BitVector> result(problem.size(), llvm::BitVector(problem.size()));
    for (NodeId node = 0; node < problem.size(); ++node)
      for (NodeId pred : predsOf(node)) {
        result[node] |= result[pred];
        result[node].set(pred);
      }
    return result;
  }

  /// Lists the dependences that the program lacks, and those that only the program has.
  void compareDependences() {
    auto given = ancestorsBy([&](NodeId node) { return problem.preds[node]; });
    auto printed = ancestorsBy([&](NodeId node) { return llvm::ArrayRef<NodeId>(edges[node]); });
    for (NodeId node = 0; node < problem.size(); ++node)
      for (NodeId other = 0; other < node; ++other)
        if (given[node].test(other) != printed[node].test(other))
          lose(node, llvm::Twine(given[node].test(other) ? "that it follows" : "that it need not follow") + " node " +
                         llvm::Twine(other));
    if (llvm::any_of(problem.busyUntil, [](Ns busy) { return busy > 0; }))
      losses.push_back("lanes that are busy at the beginning.");
  }

  const Problem &problem;
  std::string body;
  llvm::raw_string_ostream os;
  /// Indexed by buffer: its latest value, or empty before the first one.
  std::vector<std::string> values;
  /// Indexed by node: whether it has a result of 0 bytes.
  std::vector<bool> hasToken;
  /// Indexed by node: its dependences in the program.
  std::vector<std::vector<NodeId>> edges;
  /// Indexed by buffer: the last node that writes it, and the nodes that have read it since.
  std::vector<NodeId> lastWriter;
  std::vector<std::vector<NodeId>> readers;
  std::vector<bool> isWaitedFor;
  std::vector<std::string> losses;
};

} // namespace

PrintedProblem commsched::printAsMlir(const Problem &problem) { return Printer(problem).run(); }
