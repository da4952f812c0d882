//===- RuntimeBench.cpp - Collectives timed through the runtime -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Buffers, groups of the first ranks, and one timed run.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/RuntimeBench.h"
#include "BenchHandles.h"
#include "CommSched/Calibration/Statistics.h"
#include "CommSched/Support/SplitMix64.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <numeric>
#include <thread>

using namespace commsched;

/// The tag of the messages that are timed.
static constexpr int64_t kTag = 0;

/// How long a sample lasts on devices: the resolution of events is about half a microsecond.
static constexpr Ns kDeviceSampleTime = 200'000;
/// The most buffers that operations rotate through, and the smallest that they rotate through at all: below, the
/// latency counts and not the memory.
static constexpr int64_t kMostSlots = 64;
static constexpr Bytes kLeastRotated = 64 << 10;
/// Times of empty pairs of which the median is taken.
static constexpr size_t kEmptyPairs = 101;

RuntimeBench::RuntimeBench(commrt_context *context, Bytes rotatedBytes, int64_t ranksPerNode)
    : context(context), rotatedBytes(rotatedBytes), ranksPerNode(ranksPerNode),
      isDevice(commrt_context_is_device(context) == 1) {}
RuntimeBench::~RuntimeBench() {
  for (Buffer *buffer : {&collective.input, &collective.output, &beside.input, &beside.output, &gate})
    release(*buffer);
  for (Buffer &buffer : computation.buffers)
    release(buffer);
}

int32_t RuntimeBench::rank() const { return commrt_rank(context); }
int32_t RuntimeBench::ranks() const { return commrt_ranks(context); }
Ns RuntimeBench::now() const { return commrt_clock_ns(context); }
Ns RuntimeBench::sampleTime() const { return isDevice ? kDeviceSampleTime : 0; }

std::string RuntimeBench::clockName() const {
  return isDevice ? "events on the stream of the collectives, behind a gate, less an empty pair of events"
                  : "the runtime's monotonic clock, from the start to the end of the wait";
}

llvm::Error RuntimeBench::lastError() const {
  char message[4096];
  int32_t status = commrt_last_error(context, message, sizeof(message));
  return llvm::createStringError(llvm::Twine(commrt_status_name(status)) + ": " + message);
}

std::optional<int32_t> commsched::runtimeType(ElementType element) {
  switch (element) {
  case ElementType::F64:
    return COMMRT_F64;
  case ElementType::F32:
  case ElementType::TF32:
    return COMMRT_F32;
  case ElementType::BF16:
    return COMMRT_BF16;
  case ElementType::F16:
    return COMMRT_F16;
  case ElementType::I64:
    return COMMRT_I64;
  case ElementType::I32:
    return COMMRT_I32;
  case ElementType::I16:
    return COMMRT_I16;
  case ElementType::I8:
    return COMMRT_I8;
  case ElementType::F8:
  case ElementType::F4:
  case ElementType::Other:
    return std::nullopt;
  }
  return std::nullopt;
}

/// How many blocks of `count` elements the bytes of a collective are.
static int64_t blocksOf(CollectiveKind kind, int64_t ranks) {
  switch (kind) {
  case CollectiveKind::AllGather:
  case CollectiveKind::Gather:
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::Scatter:
  case CollectiveKind::AllToAll:
    return ranks;
  default:
    return 1;
  }
}

Bytes RuntimeBench::feasibleBytes(const CollectiveProbe &wanted) const {
  if (wanted.kind == CollectiveKind::Barrier)
    return 0;
  int64_t unit =
      blocksOf(wanted.kind, wanted.shape.ranks) * commrt_dtype_size(runtimeType(wanted.element).value_or(COMMRT_F32));
  return std::max<Bytes>(1, (wanted.bytes + unit / 2) / unit) * unit;
}

int64_t RuntimeBench::participants(const CollectiveProbe &wanted) const {
  return static_cast<int64_t>(groupsOfShape(wanted.shape, ranks(), ranksPerNode).size()) * wanted.shape.ranks;
}

std::optional<GroupShape> RuntimeBench::shapeAcross(GroupShape shape) const {
  RankGroups across = groupsAcross(groupsOfShape(shape, ranks(), ranksPerNode));
  return across.empty() ? std::nullopt : std::optional(shapeOfRanks(across.front(), ranksPerNode));
}

std::string RuntimeBench::groupName(int64_t ranks, int64_t nodes, int64_t ctas) {
  return "groups_of_" + std::to_string(ranks) + (nodes > 1 ? "_on_" + std::to_string(nodes) : "") +
         (ctas > 0 ? "_ctas_" + std::to_string(ctas) : "");
}

llvm::Expected<commrt_group *> RuntimeBench::groupNamed(const std::string &name, const RankGroups &members) {
  commrt_group *&found = groups[name];
  if (found)
    return found;
  std::vector<int64_t> offsets = {0}, ranks;
  for (const std::vector<int64_t> &group : members) {
    ranks.insert(ranks.end(), group.begin(), group.end());
    offsets.push_back(static_cast<int64_t>(ranks.size()));
  }
  if (commrt_group_create(context, name.c_str(), static_cast<int64_t>(members.size()), offsets.data(), ranks.data(),
                          &found) != COMMRT_OK)
    return lastError();
  return found;
}

llvm::Expected<commrt_group *> RuntimeBench::groupOfAll() {
  std::vector<int64_t> all(ranks());
  std::iota(all.begin(), all.end(), 0);
  // Where they are one group of the collectives that are measured, ranks also meet on its stream, behind these.
  return groupNamed(groupName(ranks(), shapeOfRanks(all, ranksPerNode).nodes, /*ctas=*/0), {all});
}

//===- Buffers --------------------------------------------------------------------------------===//

void RuntimeBench::release(Buffer &buffer) {
  commrt_free(context, buffer.data);
  buffer = {};
}

/// Fills `bytes` with random values that are finite and not zero in every floating type (the highest byte is that of a
/// number between 0.5 and 2), and small in the integer types. The power that a device draws depends on its data.
static void fillRandom(std::vector<unsigned char> &bytes, int64_t elementSize, bool isFloat) {
  SplitMix64 random(1);
  constexpr unsigned char exponent = 0x3f;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bool isHighest = static_cast<int64_t>(i) % elementSize == elementSize - 1;
    bytes[i] = isHighest && elementSize > 1 ? (isFloat ? exponent : 0) : static_cast<unsigned char>(random.next() | 1);
  }
}

llvm::Error RuntimeBench::grow(Buffer &buffer, Bytes bytes, int32_t type) {
  if (buffer.bytes >= bytes && buffer.dtype == type)
    return llvm::Error::success();
  if (buffer.bytes < bytes) {
    release(buffer);
    if (commrt_alloc(context, COMMRT_BUFFER_PLAIN, bytes, &buffer.data) != COMMRT_OK)
      return lastError();
    buffer.bytes = bytes;
  }
  buffer.dtype = type;
  constexpr Bytes part = 1 << 20;
  std::vector<unsigned char> values(std::min(bytes, part));
  fillRandom(values, commrt_dtype_size(type), type <= COMMRT_F64);
  auto *data = static_cast<char *>(buffer.data);
  auto filled = static_cast<Bytes>(values.size());
  if (commrt_copy(context, data, values.data(), filled, COMMRT_COPY_TO_DEVICE, nullptr) != COMMRT_OK)
    return lastError();
  for (; filled < bytes; filled *= 2)
    if (commrt_copy(context, data + filled, data, std::min(filled, bytes - filled), COMMRT_COPY_ON_DEVICE, nullptr) !=
        COMMRT_OK)
      return lastError();
  return llvm::Error::success();
}

llvm::Error RuntimeBench::prepare(const CollectiveProbe &wanted) { return prepareCollective(wanted, /*ctas=*/0); }

llvm::Error RuntimeBench::prepareCollective(const CollectiveProbe &wanted, int64_t ctas) {
  isComputation = isPair = false;
  llvm::Expected<commrt_group *> made = groupNamed(groupName(wanted.shape.ranks, wanted.shape.nodes, ctas),
                                                   groupsOfShape(wanted.shape, ranks(), ranksPerNode));
  return made ? prepareOn(*made, wanted, collective) : made.takeError();
}

/// Makes the buffers of a collective.
llvm::Error RuntimeBench::prepareOn(commrt_group *group, const CollectiveProbe &wanted, Prepared &to) {
  std::optional<int32_t> type = runtimeType(wanted.element);
  if (!type)
    return llvm::createStringError("the runtime has no element type " + stringify(wanted.element));
  dtype = *type;
  to.probe = wanted;
  to.group = group;
  int64_t blocks = blocksOf(wanted.kind, wanted.shape.ranks);
  to.count = wanted.bytes / blocks / commrt_dtype_size(dtype);
  // Each buffer has room for all blocks. Buffers begin at multiples of 256 bytes, as allocations of devices do.
  Bytes bytes = to.count * blocks * commrt_dtype_size(dtype);
  to.stride = llvm::alignTo(bytes, 256);
  to.slots = bytes >= kLeastRotated ? std::clamp<int64_t>(rotatedBytes / to.stride, 1, kMostSlots) : 1;
  if (commrt_group_rank(group) < 0 || bytes == 0)
    return llvm::Error::success();
  if (llvm::Error error = grow(to.input, to.stride * to.slots, dtype))
    return error;
  return grow(to.output, to.stride * to.slots, dtype);
}

//===- Collectives ----------------------------------------------------------------------------===//

int32_t RuntimeBench::start(const Prepared &which, int64_t operation, commrt_token **token) {
  commrt_group *group = which.group;
  int64_t count = which.count;
  int32_t place = commrt_group_rank(group);
  Bytes offset = operation % which.slots * which.stride;
  auto at = [&](const Buffer &buffer) { return buffer.data ? static_cast<char *>(buffer.data) + offset : nullptr; };
  char *in = at(which.input), *out = at(which.output);
  switch (which.probe.kind) {
  case CollectiveKind::AllGather:
    return commrt_all_gather_start(group, in, out, 1, count, dtype, -1, token);
  case CollectiveKind::ReduceScatter:
    return commrt_reduce_scatter_start(group, in, out, 1, count, dtype, COMMRT_SUM, 1, -1, token);
  case CollectiveKind::AllReduce:
    return commrt_all_reduce_start(group, in, out, count, dtype, COMMRT_SUM, 1, -1, token);
  case CollectiveKind::AllToAll:
    return commrt_all_to_all_start(group, in, out, 1, 1, count, dtype, -1, token);
  case CollectiveKind::Broadcast:
    return commrt_broadcast_start(group, in, out, count, dtype, 0, -1, token);
  case CollectiveKind::Reduce:
    return commrt_reduce_start(group, in, out, count, dtype, COMMRT_SUM, 1, 0, -1, token);
  case CollectiveKind::Gather:
    return commrt_gather_start(group, in, out, 1, count, dtype, 0, -1, token);
  case CollectiveKind::Scatter:
    return commrt_scatter_start(group, in, out, 1, count, dtype, 0, -1, token);
  case CollectiveKind::Permute: {
    std::vector<int64_t> pairs;
    int64_t members = which.probe.shape.ranks;
    for (int64_t i = 0; i < members; ++i)
      pairs.insert(pairs.end(), {i, (i + 1) % members});
    return commrt_permute_start(group, in, out, count, dtype, pairs.data(), members, -1, token);
  }
  case CollectiveKind::Send:
  case CollectiveKind::Recv:
    // One message from the first member to the second; both sides see it.
    return place == 0 ? commrt_send_start(group, in, count, dtype, 1, kTag, -1, token)
                      : commrt_recv_start(group, out, count, dtype, 0, kTag, -1, token);
  case CollectiveKind::Barrier:
    return commrt_barrier_start(group, -1, token);
  }
  return COMMRT_ERR_UNSUPPORTED;
}

//===- Samples --------------------------------------------------------------------------------===//

llvm::Error RuntimeBench::meet() {
  llvm::Expected<commrt_group *> all = groupOfAll();
  return all ? meet(*all) : all.takeError();
}

llvm::Error RuntimeBench::meet(commrt_group *members) {
  commrt_token *token = nullptr;
  if (commrt_barrier_start(members, -1, &token) != COMMRT_OK || commrt_wait_host(token, -1) != COMMRT_OK ||
      commrt_token_release(token) != COMMRT_OK)
    return lastError();
  return llvm::Error::success();
}

llvm::Expected<ProbeTime> RuntimeBench::run(int64_t operations) {
  if (llvm::Error error = meet())
    return std::move(error);
  if (isComputation)
    return isDevice ? computeOnDevice(operations) : computeOnHost(operations);
  if (commrt_group_rank(collective.group) < 0)
    return ProbeTime();
  if (isPair)
    return isDevice ? runPairOnDevice(operations) : runPairOnHost(operations);
  return isDevice ? runOnDevice(operations) : runOnHost(operations);
}

llvm::Expected<ProbeTime> RuntimeBench::runOnHost(int64_t operations) {
  ProbeTime time;
  for (int64_t i = 0; i < operations; ++i) {
    commrt_token *token = nullptr;
    Ns begin = now();
    if (start(collective, turn++, &token) != COMMRT_OK)
      return lastError();
    Ns issued = now();
    if (commrt_wait_host(token, -1) != COMMRT_OK)
      return lastError();
    time.total += now() - begin;
    time.issue += issued - begin;
    commrt_token_release(token);
  }
  return ProbeTime{time.total / operations, time.issue / operations};
}

llvm::Error RuntimeBench::await(commrt_event *event) {
  for (int32_t done = 0; !done; std::this_thread::yield())
    if (commrt_event_test(event, &done) != COMMRT_OK)
      return lastError();
  return llvm::Error::success();
}

llvm::Expected<Ns> RuntimeBench::elapsedBetween(commrt_event *empty, commrt_event *begin, commrt_event *end) {
  Ns pair = 0, total = 0;
  if (commrt_event_elapsed(empty, begin, &pair) != COMMRT_OK || commrt_event_elapsed(begin, end, &total) != COMMRT_OK)
    return lastError();
  if (emptyPairs.size() == kEmptyPairs)
    emptyPairs.erase(emptyPairs.begin());
  emptyPairs.push_back(pair);
  return std::max<Ns>(0, total - medianOf(emptyPairs));
}

llvm::Expected<commrt_group *> RuntimeBench::groupOfTakers() {
  // One group takes itself: its gate is on the stream of its own collectives.
  return participants(collective.probe) == collective.probe.shape.ranks ? collective.group : groupOfAll();
}

/// The gate is a sum of one element: when it is done, every rank that takes part has arrived on its device, so that
/// what is behind it waits for nobody.
llvm::Error RuntimeBench::startGate(commrt_token **token) {
  llvm::Expected<commrt_group *> takers = groupOfTakers();
  if (!takers)
    return takers.takeError();
  if (!gate.data)
    if (llvm::Error error = grow(gate, 2 * sizeof(float), COMMRT_F32))
      return error;
  auto *in = static_cast<float *>(gate.data);
  if (commrt_all_reduce_start(*takers, in, in + 1, 1, COMMRT_F32, COMMRT_SUM, 1, -1, token) != COMMRT_OK)
    return lastError();
  return llvm::Error::success();
}

/// Messages run on another stream than collectives, which waits for the gate.
llvm::Expected<ProbeTime> RuntimeBench::runOnDevice(int64_t operations) {
  CollectiveKind kind = collective.probe.kind;
  bool isMessage = kind == CollectiveKind::Send || kind == CollectiveKind::Recv;
  commrt_stream *stream = nullptr;
  BenchHandles all(3, operations + 1);
  commrt_event *&empty = all.events[0], *&begin = all.events[1], *&end = all.events[2];
  if (llvm::Error error = startGate(&all.tokens.back()))
    return std::move(error);
  if (commrt_group_stream(collective.group, isMessage, &stream) != COMMRT_OK ||
      commrt_wait(all.tokens.back(), stream) != COMMRT_OK ||
      commrt_event_record_timed(context, stream, &empty) != COMMRT_OK ||
      commrt_event_record_timed(context, stream, &begin) != COMMRT_OK)
    return lastError();
  Ns issued = 0;
  for (int64_t i = 0; i < operations; ++i) {
    Ns before = now();
    if (start(collective, i, &all.tokens[i]) != COMMRT_OK)
      return lastError();
    // A message is put on its stream when something waits for it.
    if (isMessage && commrt_wait(all.tokens[i], stream) != COMMRT_OK)
      return lastError();
    issued += now() - before;
  }
  if (commrt_event_record_timed(context, stream, &end) != COMMRT_OK ||
      commrt_wait_host(all.tokens[operations - 1], -1) != COMMRT_OK)
    return lastError();
  if (llvm::Error error = await(end))
    return std::move(error);
  llvm::Expected<Ns> total = elapsedBetween(empty, begin, end);
  if (!total)
    return total.takeError();
  return ProbeTime{*total / operations, issued / operations};
}

llvm::Expected<std::vector<std::vector<int64_t>>> RuntimeBench::gather(llvm::ArrayRef<int64_t> own) {
  llvm::Expected<commrt_group *> all = groupOfAll();
  if (!all)
    return all.takeError();
  auto size = static_cast<Bytes>(own.size() * sizeof(int64_t));
  std::vector<int64_t> flat(own.size() * ranks());
  void *in = const_cast<int64_t *>(own.data()), *out = flat.data();
  Buffer onDevice;
  if (isDevice) {
    if (commrt_alloc(context, COMMRT_BUFFER_PLAIN, size * (ranks() + 1), &onDevice.data) != COMMRT_OK ||
        commrt_copy(context, onDevice.data, own.data(), size, COMMRT_COPY_TO_DEVICE, nullptr) != COMMRT_OK)
      return lastError();
    in = onDevice.data;
    out = static_cast<char *>(onDevice.data) + size;
  }
  commrt_token *token = nullptr;
  if (commrt_all_gather_start(*all, in, out, 1, static_cast<int64_t>(own.size()), COMMRT_I64, -1, &token) !=
          COMMRT_OK ||
      commrt_wait_host(token, -1) != COMMRT_OK)
    return lastError();
  if (isDevice &&
      (commrt_wait(token, nullptr) != COMMRT_OK ||
       commrt_copy(context, flat.data(), out, size * ranks(), COMMRT_COPY_FROM_DEVICE, nullptr) != COMMRT_OK))
    return lastError();
  commrt_token_release(token);
  release(onDevice);
  std::vector<std::vector<int64_t>> result;
  for (int32_t rank = 0; rank < ranks(); ++rank)
    result.emplace_back(flat.begin() + rank * own.size(), flat.begin() + (rank + 1) * own.size());
  return result;
}
