//===- StreamsTest.cpp - Tests of the streams of a block --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Random programs with random events against an oracle: the graph of what certainly happens before what, closed under
// transitivity, and all pairs of operations that access one storage.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Streams.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"
#include <random>
#include <set>

using namespace mlir;
using namespace commsched;

namespace {

/// One operation of a random program.
struct RandomOp {
  StreamUse use = StreamUse::Work;
  int stream = 0;
  std::string text;
  /// Storage that it reads and writes.
  std::set<int> reads, writes;
  /// Of a wait its start, of an await its record.
  int source = -1;
};

/// Writes a program of computations (some write an operand), views, starts with their waits, records and awaits.
class RandomStreams {
public:
  explicit RandomStreams(unsigned seed) : random(seed) {
    streams = 1 + below(4);
    values = {{"%x", 0}, {"%y", 1}};
    storages = 2;
    for (int left = 4 + below(12); left > 0; --left)
      step();
    for (int start : std::vector<int>(inFlight))
      addWait(start);
  }

  std::string text() const {
    std::string text = "comm.group @dp #comm.iota<[1, 4]>\n"
                       "func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {\n";
    for (const RandomOp &op : ops)
      text += op.text + "\n";
    return text + "return\n}\n";
  }

  std::vector<RandomOp> ops;

private:
  int below(int bound) { return static_cast<int>(random() % bound); }

  std::string attribute(int stream) const { return " {comm.stream = " + std::to_string(stream) + " : i64} "; }
  std::string name() { return "%v" + std::to_string(names++); }

  void step() {
    switch (below(8)) {
    case 0:
      return addView();
    case 1:
    case 2:
      return addStart();
    case 3:
      if (!inFlight.empty())
        return addWait(inFlight[below(static_cast<int>(inFlight.size()))]);
      [[fallthrough]];
    case 4:
      return addRecord();
    case 5:
      if (!records.empty())
        return addAwait();
      [[fallthrough]];
    default:
      return addCompute();
    }
  }

  const std::pair<std::string, int> &pick() { return values[below(static_cast<int>(values.size()))]; }

  void addCompute() {
    RandomOp op;
    op.stream = below(streams);
    auto [a, storageOfA] = pick();
    auto [b, storageOfB] = pick();
    bool mutates = below(3) == 0 && !isInFlight(storageOfA);
    std::string result = name();
    op.text = result + " = comm.compute \"op\"(" + a + ", " + b + ")" + (mutates ? " mutates [0]" : "") +
              attribute(op.stream) + ": (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>";
    op.reads = {storageOfA, storageOfB};
    op.writes = {storages};
    if (mutates)
      op.writes.insert(storageOfA);
    values.emplace_back(result, storages++);
    ops.push_back(op);
  }

  void addView() {
    auto [a, storage] = pick();
    RandomOp op;
    op.use = StreamUse::None;
    std::string result = name();
    op.text = result + " = comm.compute \"view\"(" + a + ") aliases [0] : (tensor<4xf32>) -> tensor<4xf32>";
    values.emplace_back(result, storage);
    ops.push_back(op);
  }

  void addStart() {
    auto [a, storage] = pick();
    RandomOp op;
    op.use = StreamUse::Start;
    op.stream = below(streams);
    op.reads = {storage};
    op.text = name() + " = comm.all_reduce sum " + a + " on @dp" + attribute(op.stream) +
              ": (tensor<4xf32>) -> !comm.future<tensor<4xf32>>";
    inFlight.push_back(static_cast<int>(ops.size()));
    ops.push_back(op);
  }

  void addWait(int start) {
    llvm::erase(inFlight, start);
    RandomOp op;
    op.use = StreamUse::Wait;
    op.stream = below(streams);
    op.reads = ops[start].reads;
    op.writes = {storages};
    op.source = start;
    std::string future = ops[start].text.substr(0, ops[start].text.find(' ')), result = name();
    op.text = result + " = comm.wait " + future + attribute(op.stream) + ": !comm.future<tensor<4xf32>>";
    values.emplace_back(result, storages++);
    ops.push_back(op);
  }

  void addRecord() {
    RandomOp op;
    op.use = StreamUse::Record;
    op.stream = below(streams);
    op.text = name() + " = comm.record on " + std::to_string(op.stream) + " : !comm.event";
    records.push_back(static_cast<int>(ops.size()));
    ops.push_back(op);
  }

  void addAwait() {
    RandomOp op;
    op.use = StreamUse::Await;
    op.stream = below(streams);
    op.source = records[below(static_cast<int>(records.size()))];
    const std::string &record = ops[op.source].text;
    op.text = "comm.await_event " + record.substr(0, record.find(' ')) + " on " + std::to_string(op.stream) +
              " : !comm.event";
    ops.push_back(op);
  }

  bool isInFlight(int storage) const {
    return llvm::any_of(inFlight, [&](int start) { return ops[start].reads.count(storage) > 0; });
  }

  std::mt19937 random;
  int streams, storages, names = 0;
  std::vector<std::pair<std::string, int>> values;
  std::vector<int> inFlight, records;
};

/// What certainly happens before what. Point 0 is the beginning of the block, on stream 0; the last one its end.
class HappensBefore {
public:
  explicit HappensBefore(const std::vector<RandomOp> &ops) : ops(ops), end(static_cast<int>(ops.size()) + 1) {
    before.assign(end + 1, std::vector<bool>(end + 1, false));
    for (int a = 0; a <= end; ++a)
      for (int b = a + 1; b <= end; ++b)
        before[a][b] = (isOnStream(a) && isOnStream(b) && streamOf(a) == streamOf(b)) ||
                       (b < end && ops[b - 1].source >= 0 && ops[b - 1].source + 1 == a);
    for (int via = 0; via <= end; ++via)
      for (int a = 0; a <= end; ++a)
        for (int b = 0; b <= end; ++b)
          if (before[a][via] && before[via][b])
            before[a][b] = true;
  }

  /// Returns true if every dependence between two streams is covered.
  bool isComplete() const {
    for (int b = 1; b < end; ++b) {
      if (!isUser(b))
        continue;
      if (!before[0][b] || (works(b) && !before[b][end]))
        return false;
      for (int a = 1; a < b; ++a)
        if (works(a) && conflict(ops[a - 1], ops[b - 1]) && !before[a][b])
          return false;
    }
    return true;
  }

  /// The first operation, not before `id`, after which all streams with more to do know that `id` has ended.
  int knownByAll(int id) const {
    for (int at = id; at < static_cast<int>(ops.size()); ++at) {
      bool known = true;
      for (int later = at + 1; later < static_cast<int>(ops.size()); ++later)
        if (isUser(later + 1) && ops[later].stream != ops[id].stream) {
          bool knows = false;
          for (int anchor = 0; anchor <= at; ++anchor)
            knows |= isOnStream(anchor + 1) && ops[anchor].stream == ops[later].stream && before[id + 1][anchor + 1];
          known &= knows;
        }
      if (known)
        return at;
    }
    return static_cast<int>(ops.size());
  }

private:
  bool isOnStream(int point) const { return point == 0 || point == end || ops[point - 1].use != StreamUse::None; }
  int streamOf(int point) const { return point == 0 || point == end ? 0 : ops[point - 1].stream; }
  bool works(int point) const { return ops[point - 1].use == StreamUse::Work || ops[point - 1].use == StreamUse::Wait; }
  bool isUser(int point) const { return works(point) || ops[point - 1].use == StreamUse::Start; }
  static bool conflict(const RandomOp &a, const RandomOp &b) {
    auto meet = [](const std::set<int> &x, const std::set<int> &y) {
      return llvm::any_of(x, [&](int storage) { return y.count(storage) > 0; });
    };
    return meet(a.writes, b.reads) || meet(a.writes, b.writes) || meet(a.reads, b.writes);
  }

  const std::vector<RandomOp> &ops;
  int end;
  std::vector<std::vector<bool>> before;
};

class StreamsTest : public ::testing::Test {
protected:
  StreamsTest() { context.loadDialect<comm::CommDialect, func::FuncDialect>(); }

  Block &parse(const std::string &text) {
    module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module) << text;
    return module->lookupSymbol<func::FuncOp>("f").front();
  }

  static bool nothingMissing(Block &block) {
    BlockNodes nodes(block);
    return StreamAnalysis(nodes, StorageMap(block)).missing().empty();
  }

  /// The operations of a block as the oracle sees them; `given` describes those that are no anchors, in their order.
  static std::vector<RandomOp> describe(Block &block, const std::vector<RandomOp> &given) {
    std::vector<RandomOp> result;
    llvm::DenseMap<Operation *, int> places;
    size_t next = 0;
    for (Operation &op : block.without_terminator()) {
      places[&op] = static_cast<int>(result.size());
      RandomOp entry;
      if (auto record = dyn_cast<comm::RecordOp>(op)) {
        entry.use = StreamUse::Record;
        entry.stream = static_cast<int>(record.getStream());
      } else if (auto await = dyn_cast<comm::AwaitEventOp>(op)) {
        entry.use = StreamUse::Await;
        entry.stream = static_cast<int>(await.getStream());
        entry.source = places.at(await.getEvent().getDefiningOp());
      } else {
        while (given[next].use == StreamUse::Record || given[next].use == StreamUse::Await)
          ++next;
        entry = given[next++];
        if (auto wait = dyn_cast<comm::WaitOp>(op))
          entry.source = places.at(wait.getFuture().getDefiningOp());
      }
      result.push_back(entry);
    }
    return result;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

TEST_F(StreamsTest, FindsWhatIsMissingOnRandomPrograms) {
  int complete = 0, inserted = 0;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    RandomStreams program(seed);
    Block &block = parse(program.text());
    bool isComplete = HappensBefore(program.ops).isComplete();
    complete += isComplete;
    ASSERT_EQ(nothingMissing(block), isComplete) << seed << "\n" << program.text();
    // What is inserted is enough, and none of it is too much.
    std::set<Operation *> old;
    for (Operation &op : block)
      old.insert(&op);
    insertEvents(block);
    ASSERT_TRUE(nothingMissing(block)) << seed;
    std::vector<RandomOp> repaired = describe(block, program.ops);
    ASSERT_TRUE(HappensBefore(repaired).isComplete()) << seed;
    for (auto [index, op] : llvm::enumerate(block.without_terminator())) {
      if (!isa<comm::AwaitEventOp>(op) || old.count(&op))
        continue;
      ++inserted;
      std::vector<RandomOp> without = repaired;
      without[index].use = StreamUse::None;
      without[index].source = -1;
      ASSERT_FALSE(HappensBefore(without).isComplete()) << seed << ", operation " << index;
    }
  }
  EXPECT_GT(complete, 50);
  EXPECT_GT(inserted, 1000);
}

TEST_F(StreamsTest, KnowsWhenAllStreamsKnow) {
  int late = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    RandomStreams program(seed);
    Block &block = parse(program.text());
    insertEvents(block);
    std::vector<RandomOp> ops = describe(block, program.ops);
    HappensBefore oracle(ops);
    BlockNodes nodes(block);
    StreamAnalysis analysis(nodes, StorageMap(block));
    for (NodeId id = 0; id < nodes.size(); ++id) {
      if (ops[id].use != StreamUse::Work && ops[id].use != StreamUse::Wait)
        continue;
      ASSERT_EQ(analysis.knownByAll(id), oracle.knownByAll(id)) << seed << ", operation " << id;
      late += analysis.knownByAll(id) > id;
    }
  }
  EXPECT_GT(late, 300);
}

// Tests that numbers of anchors beyond the limit of streams cost no memory and cover nothing.
TEST_F(StreamsTest, AnchorsOfManyStreamsCoverNothing) {
  std::string text = "func.func @f(%x: tensor<4xf32>) {\n";
  for (int i = 1; i < 200; ++i)
    text += "%e" + std::to_string(i) + " = comm.record on " + std::to_string(i * 1000) + " : !comm.event\n";
  text += "comm.await_event %e199 on 1 : !comm.event\n"
          "%a = comm.compute \"op\"(%x) {comm.stream = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>\nreturn\n}\n";
  Block &block = parse(text);
  BlockNodes nodes(block);
  StreamAnalysis analysis(nodes, StorageMap(block));
  EXPECT_LE(analysis.numbers().size(), 64u);
  EXPECT_FALSE(nothingMissing(block));
}

} // namespace
