//===- BucketingTest.cpp - Tests of the expansion of buckets ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The expected numbers are worked out by hand from the rules in Bucketing.h.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "gtest/gtest.h"

using namespace commsched;

namespace {

constexpr Bytes MiB = 1 << 20;

/// Builds Problems node by node.
struct Builder {
  Problem problem;

  Builder() {
    problem.laneNames = {"compute", "dp"};
    problem.copyCost = [](Bytes read, Bytes written) -> Ns { return 7 + (read + written) / MiB; };
  }
  BufferId buffer(Bytes bytes, NodeId def, bool liveOut = false) {
    problem.buffers.push_back({bytes, def, liveOut});
    return static_cast<BufferId>(problem.buffers.size()) - 1;
  }
  NodeId node(Node node, llvm::ArrayRef<NodeId> preds, llvm::ArrayRef<BufferId> touches) {
    problem.nodes.push_back(node);
    problem.members.emplace_back();
    problem.preds.append(preds);
    problem.touches.append(touches);
    return problem.size() - 1;
  }
  NodeId compute(Ns cost, llvm::ArrayRef<NodeId> preds, llvm::ArrayRef<BufferId> touches) {
    Node node;
    node.cost = cost;
    return this->node(node, preds, touches);
  }
  int32_t key(CollectiveKind kind, int32_t ranks) {
    MergeKey key;
    key.kind = kind;
    key.lane = 1;
    key.ranks = ranks;
    key.cost = [](Bytes bytes) -> Ns { return 1000 + bytes / MiB; };
    problem.mergeKeys.push_back(key);
    return static_cast<int32_t>(problem.mergeKeys.size()) - 1;
  }
  NodeId start(int32_t key, Bytes bytes, llvm::ArrayRef<NodeId> preds, llvm::ArrayRef<BufferId> touches) {
    Node node;
    node.kind = NodeKind::Start;
    node.lane = 1;
    node.mergeKey = key;
    node.collective = problem.mergeKeys[key].kind;
    node.bytes = bytes;
    node.cost = problem.mergeKeys[key].cost(bytes);
    return this->node(node, preds, touches);
  }
  NodeId wait(NodeId start, llvm::ArrayRef<BufferId> touches) {
    Node node;
    node.kind = NodeKind::Wait;
    node.start = start;
    return this->node(node, {start}, touches);
  }
};

/// cast(argument) -> gather of 64 MiB; an argument -> gather of 1 MiB; the same again of 2 MiB; three users.
Builder threeGathers() {
  Builder b;
  int32_t key = b.key(CollectiveKind::AllGather, 4);
  BufferId shard = b.buffer(16 * MiB, 0);
  b.compute(5, {}, {shard}); // 0: the cast, reads 32 MiB
  Bytes gathered[] = {64 * MiB, 1 * MiB, 2 * MiB};
  BufferId outputs[3];
  for (int i = 0; i < 3; ++i) { // starts 1, 2, 3
    outputs[i] = b.buffer(gathered[i], i + 1);
    if (i == 0)
      b.start(key, gathered[i], {0}, {shard, outputs[i]});
    else
      b.start(key, gathered[i], {}, {outputs[i]});
  }
  for (int i = 0; i < 3; ++i) { // waits and users 4..9
    NodeId wait = i == 0 ? b.wait(1, {shard, outputs[0]}) : b.wait(i + 1, {outputs[i]});
    b.compute(10, {wait}, {outputs[i]});
    MergeMember &member = b.problem.members[i + 1];
    member.wait = wait;
    member.input = i == 0 ? shard : kNone;
    member.output = outputs[i];
    member.inputBytes = gathered[i] / 4;
    member.outputBytes = gathered[i];
  }
  b.problem.members[1].cast = 0;
  b.problem.members[1].castInputBytes = 32 * MiB;
  b.problem.finalize();
  return b;
}

/// Two gradients of 8 and 4 MiB, scattered over 4 ranks, then used; `kind` may also be an all-reduce.
Builder twoReductions(CollectiveKind kind) {
  Builder b;
  int32_t key = b.key(kind, 4);
  Bytes sizes[] = {8 * MiB, 4 * MiB};
  for (int i = 0; i < 2; ++i) {
    NodeId first = b.problem.size();
    Bytes outputBytes = kind == CollectiveKind::ReduceScatter ? sizes[i] / 4 : sizes[i];
    BufferId input = b.buffer(sizes[i], first), output = b.buffer(outputBytes, first + 1, /*liveOut=*/i == 1);
    b.compute(20, {}, {input});
    NodeId start = b.start(key, sizes[i], {first}, {input, output});
    NodeId wait = b.wait(start, {input, output});
    b.compute(1, {wait}, {output});
    MergeMember &member = b.problem.members[start];
    member.wait = wait;
    member.input = input;
    member.output = output;
    member.inputBytes = sizes[i];
    member.outputBytes = outputBytes;
  }
  b.problem.finalize();
  return b;
}

ExpandedProblem expand(const Problem &problem, llvm::ArrayRef<Bucket> buckets) {
  EXPECT_EQ(problem.validate(), "");
  llvm::Expected<ExpandedProblem> expanded = expandBuckets(problem, buckets);
  if (!expanded) {
    ADD_FAILURE() << llvm::toString(expanded.takeError());
    return {};
  }
  EXPECT_EQ(expanded->problem.validate(), "");
  return std::move(*expanded);
}

std::string errorOf(const Problem &problem, llvm::ArrayRef<Bucket> buckets) {
  llvm::Expected<ExpandedProblem> expanded = expandBuckets(problem, buckets);
  return expanded ? "" : llvm::toString(expanded.takeError());
}

TEST(Bucketing, NoBucketsGiveTheSameProblem) {
  Builder b = threeGathers();
  ExpandedProblem expanded = expand(b.problem, {});
  ASSERT_EQ(expanded.problem.size(), b.problem.size());
  for (NodeId node = 0; node < b.problem.size(); ++node) {
    EXPECT_EQ(expanded.origin[node], node);
    EXPECT_EQ(expanded.problem.preds[node], b.problem.preds[node]);
    EXPECT_EQ(expanded.problem.touches[node], b.problem.touches[node]);
  }
}

TEST(Bucketing, PacksAllGathers) {
  Builder b = threeGathers();
  ExpandedProblem expanded = expand(b.problem, Bucket{{1, 2, 3}, BucketForm::Packed});
  const Problem &p = expanded.problem;
  const BucketNodes &names = expanded.buckets[0];
  // pack, start, wait, the big unpack, the shared one, three users; the cast is gone.
  ASSERT_EQ(p.size(), 8);
  // The pack reads 32 + 1/4 + 2/4 MiB and writes 16 + 1/4 + 2/4.
  EXPECT_EQ(p.nodes[names.pack].cost, 7 + 49);
  EXPECT_EQ(p.nodes[names.start].cost, 1000 + 67);
  EXPECT_EQ(p.nodes[names.start].bytes, 67 * MiB);
  EXPECT_EQ(p.nodes[names.wait].start, names.start);
  ASSERT_EQ(names.unpacks.size(), 3u);
  EXPECT_EQ(p.nodes[names.unpacks[0]].cost, 7 + 128);
  EXPECT_EQ(names.unpacks[1], names.unpacks[2]);
  EXPECT_EQ(p.nodes[names.unpacks[1]].cost, 7 + 6);
  EXPECT_EQ(names.view, kNone);
  // Buffers: the cast's is gone, the gathered one is defined by the pack and dies with the last unpack.
  EXPECT_EQ(p.buffers[0].bytes, 0);
  ASSERT_EQ(p.buffers.size(), 5u);
  EXPECT_EQ(p.buffers[4].bytes, 67 * MiB);
  EXPECT_EQ(p.buffers[4].def, names.pack);
  EXPECT_EQ(p.users[4].vec(),
            std::vector<NodeId>({names.pack, names.start, names.wait, names.unpacks[0], names.unpacks[1]}));
  EXPECT_EQ(p.buffers[1].def, names.unpacks[0]);
  EXPECT_EQ(p.buffers[2].def, names.unpacks[1]);
  EXPECT_EQ(p.buffers[3].def, names.unpacks[1]);
  // The users of the waits depend on the unpacks.
  for (int i = 0; i < 3; ++i) {
    NodeId user = expanded.image[5 + 2 * i];
    EXPECT_EQ(p.preds[user].vec(), std::vector<NodeId>({names.unpacks[i]}));
    EXPECT_EQ(expanded.image[4 + 2 * i], names.unpacks[i]);
    EXPECT_EQ(expanded.image[1 + i], names.start);
  }
  EXPECT_EQ(expanded.image[0], names.pack);
}

TEST(Bucketing, KeepsACastThatOthersSee) {
  Builder b = threeGathers();
  b.problem.buffers[0].liveOut = true;
  ExpandedProblem expanded = expand(b.problem, Bucket{{1, 2}, BucketForm::Packed});
  const BucketNodes &names = expanded.buckets[0];
  EXPECT_EQ(expanded.origin[expanded.image[0]], 0);
  // 16 + 1/4 MiB read and written.
  EXPECT_EQ(expanded.problem.nodes[names.pack].cost, 7 + 32);
  EXPECT_EQ(expanded.problem.buffers[0].bytes, 16 * MiB);
  EXPECT_EQ(expanded.problem.preds[names.pack].vec(), std::vector<NodeId>({expanded.image[0]}));
}

TEST(Bucketing, PacksReduceScatters) {
  Builder b = twoReductions(CollectiveKind::ReduceScatter);
  ExpandedProblem expanded = expand(b.problem, Bucket{{1, 5}, BucketForm::Packed});
  const Problem &p = expanded.problem;
  const BucketNodes &names = expanded.buckets[0];
  // two producers, pack, start, wait, view, two users
  ASSERT_EQ(p.size(), 8);
  EXPECT_EQ(p.nodes[names.pack].cost, 7 + 24);
  EXPECT_EQ(p.nodes[names.start].cost, 1000 + 12);
  EXPECT_EQ(p.nodes[names.view].cost, 0);
  ASSERT_EQ(p.buffers.size(), 6u);
  EXPECT_EQ(p.buffers[4].bytes, 12 * MiB);
  EXPECT_EQ(p.buffers[4].def, names.pack);
  EXPECT_EQ(p.users[4].vec(), std::vector<NodeId>({names.pack, names.start, names.wait}));
  EXPECT_EQ(p.buffers[5].bytes, 3 * MiB);
  EXPECT_EQ(p.buffers[5].def, names.start);
  EXPECT_TRUE(p.buffers[5].liveOut);
  // The inputs are read by the pack only.
  EXPECT_EQ(p.users[0].vec(), std::vector<NodeId>({expanded.image[0], names.pack}));
  for (NodeId user : {3, 7}) {
    EXPECT_EQ(p.preds[expanded.image[user]].vec(), std::vector<NodeId>({names.view}));
    EXPECT_EQ(p.touches[expanded.image[user]].vec(), std::vector<BufferId>({5}));
  }
}

TEST(Bucketing, PacksAllReducesInPlace) {
  Builder b = twoReductions(CollectiveKind::AllReduce);
  ExpandedProblem expanded = expand(b.problem, Bucket{{1, 5}, BucketForm::Packed});
  const Problem &p = expanded.problem;
  ASSERT_EQ(p.buffers.size(), 5u);
  EXPECT_EQ(p.buffers[4].bytes, 12 * MiB);
  EXPECT_EQ(p.buffers[4].def, expanded.buckets[0].pack);
  EXPECT_TRUE(p.buffers[4].liveOut);
  EXPECT_EQ(p.touches[expanded.image[3]].vec(), std::vector<BufferId>({4}));
}

TEST(Bucketing, CoalescesOverTheMembersBuffers) {
  Builder b = threeGathers();
  b.problem.mergeKeys[0].groupCost = [](Bytes bytes, int32_t members) { return bytes / MiB + 10000 * members; };
  ExpandedProblem expanded = expand(b.problem, Bucket{{1, 2}, BucketForm::Coalesced});
  const Problem &p = expanded.problem;
  const BucketNodes &names = expanded.buckets[0];
  // cast, merged start and wait, third start and wait, three users
  ASSERT_EQ(p.size(), 8);
  EXPECT_EQ(names.pack, kNone);
  EXPECT_EQ(p.nodes[names.start].cost, 20000 + 65);
  EXPECT_EQ(p.touches[names.start].vec(), std::vector<BufferId>({0, 1, 2}));
  EXPECT_EQ(p.touches[names.wait].vec(), std::vector<BufferId>({0, 1, 2}));
  EXPECT_EQ(p.preds[names.start].vec(), std::vector<NodeId>({expanded.image[0]}));
  EXPECT_EQ(p.buffers[1].def, names.start);
}

TEST(Bucketing, RefusesWhatCannotBeMerged) {
  Builder b = threeGathers();
  EXPECT_EQ(errorOf(b.problem, Bucket{{1}, BucketForm::Packed}), "bucket 0: fewer than two members");
  EXPECT_EQ(errorOf(b.problem, Bucket{{1, 0}, BucketForm::Packed}), "bucket 0: node 0 cannot be merged");
  EXPECT_EQ(errorOf(b.problem, {Bucket{{1, 2}, BucketForm::Packed}, Bucket{{2, 3}, BucketForm::Packed}}),
            "bucket 1: node 2 is merged twice");
  b.problem.nodes[2].pinned = true;
  EXPECT_EQ(errorOf(b.problem, Bucket{{1, 2}, BucketForm::Packed}), "bucket 0: node 2 cannot be merged");
}

TEST(Bucketing, RefusesABucketThatDependsOnItself) {
  Builder b;
  int32_t key = b.key(CollectiveKind::AllReduce, 4);
  BufferId first = b.buffer(4, 0), second = b.buffer(4, 1), third = b.buffer(4, 3);
  b.compute(1, {}, {first});
  b.start(key, 4, {0}, {first, second});
  b.wait(1, {first, second});
  b.start(key, 4, {2}, {second, third});
  b.wait(3, {second, third});
  b.problem.members[1] = {2, first, second, 4, 4, kNone, 0};
  b.problem.members[3] = {4, second, third, 4, 4, kNone, 0};
  b.problem.finalize();
  EXPECT_EQ(errorOf(b.problem, Bucket{{1, 3}, BucketForm::Packed}), "a bucket depends on itself");
}

} // namespace
