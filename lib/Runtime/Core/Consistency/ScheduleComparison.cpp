//===- ScheduleComparison.cpp - Compares schedules before anything can hang -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each rank presents a hash of its sequence of collectives. If they differ, the ranks find the first difference by
// bisection over prefix hashes (log2 n rounds) and show each other that one collective.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Core.h"
#include <algorithm>
#include <cstring>

using namespace commsched::runtime;

namespace {
struct Schedule {
  uint64_t hash;
  int64_t numSites;
};

/// What ranks compare first.
struct Presented {
  Compared<Schedule> schedule;
  Compared<uint64_t> signature;
  int64_t shortest; ///< number of sites
  MessageExtent messages;
};

/// What ranks show each other of one site.
struct ShownSite {
  uint64_t hash;
  char text[504];
};

struct ScheduleComparison {
  commrt_context *context;
  uint64_t signature;
  std::vector<commrt_site> sites = {}; ///< without sends and receives, which ranks need not have in common
  int64_t altered = -1;                ///< by an injected fault
  std::vector<uint64_t> prefix = {};   ///< prefix[k]: hash of the first k sites
  MessageExtent messages = {};         ///< of all ranks, when the schedules have been compared

  int64_t numSites() const { return static_cast<int64_t>(sites.size()); }
  void add(const commrt_site *all, int64_t count);

  int32_t run();
  int32_t bisect(int64_t shortest, int64_t &first);
  int32_t reportSite(int64_t index);
};
} // namespace

int32_t commsched::runtime::combineRanks(commrt_context *context, const char *what, void *value, int64_t bytes,
                                         commrt_combine_fn combine) {
  char text[1024] = "";
  int32_t status =
      context->job->backend->combine(context->peer, value, bytes, combine, context->job->timeoutNs, text, sizeof(text));
  if (int32_t earlier = latched(context))
    return earlier;
  return status == COMMRT_OK ? status : fail(context, status, std::string(what) + ": " + text);
}

static uint64_t hashSite(const commrt_site &site) {
  uint64_t hash = mix(mix(mix(1, site.kind), site.dtype), site.count);
  for (const char *c = site.group ? site.group : ""; *c; ++c)
    hash = mix(hash, static_cast<unsigned char>(*c));
  return hash;
}

void ScheduleComparison::add(const commrt_site *all, int64_t count) {
  const Fault &fault = context->job->fault;
  for (int64_t i = 0; i < count; ++i) {
    if (all[i].kind == COMMRT_SEND || all[i].kind == COMMRT_RECV)
      continue;
    sites.push_back(all[i]);
    if (fault.kind == FaultKind::signature && fault.start == i && fault.hits(context->rank, context->job->ranks)) {
      altered = numSites() - 1;
      ++sites.back().count;
    }
  }
}

static bool isSame(uint64_t a, uint64_t b) { return a == b; }
static bool isSameSchedule(const Schedule &a, const Schedule &b) {
  return a.hash == b.hash && a.numSites == b.numSites;
}
static bool isSameSite(const ShownSite &a, const ShownSite &b) { return a.hash == b.hash; }

static void combinePresented(void *lower, const void *higher, int64_t) {
  auto &a = *static_cast<Presented *>(lower);
  const auto &b = *static_cast<const Presented *>(higher);
  a.schedule.add(b.schedule, isSameSchedule);
  a.signature.add(b.signature, isSame);
  a.shortest = std::min(a.shortest, b.shortest);
  a.messages.most = std::max(a.messages.most, b.messages.most);
  a.messages.announces = std::min(a.messages.announces, b.messages.announces);
}

static void combineHashes(void *lower, const void *higher, int64_t) {
  static_cast<Compared<uint64_t> *>(lower)->add(*static_cast<const Compared<uint64_t> *>(higher), isSame);
}

static void combineSites(void *lower, const void *higher, int64_t) {
  static_cast<Compared<ShownSite> *>(lower)->add(*static_cast<const Compared<ShownSite> *>(higher), isSameSite);
}

static void combineNothing(void *, const void *, int64_t) {}

static constexpr const char *comparingSchedules = "comparing schedules";

/// The number of leading sites in which all ranks agree.
int32_t ScheduleComparison::bisect(int64_t shortest, int64_t &first) {
  int64_t low = 0, high = shortest;
  while (low < high) {
    int64_t middle = low + (high - low + 1) / 2;
    Compared<uint64_t> hashes(prefix[middle], context->rank);
    if (int32_t status = combineRanks(context, comparingSchedules, &hashes, sizeof(hashes), combineHashes))
      return status;
    if (hashes.otherRank < 0)
      low = middle;
    else
      high = middle - 1;
  }
  first = low;
  return COMMRT_OK;
}

int32_t ScheduleComparison::reportSite(int64_t index) {
  ShownSite mine = {};
  std::string text = "no further collective";
  if (index < numSites()) {
    mine.hash = hashSite(sites[index]);
    text = describeSite(sites[index]) + (index == altered ? " [altered by an injected fault]" : "");
  }
  copyText(text, mine.text, sizeof(mine.text));
  Compared<ShownSite> shown(mine, context->rank);
  if (int32_t status = combineRanks(context, comparingSchedules, &shown, sizeof(shown), combineSites))
    return status;
  // None is another one only where two hashes are equal by chance; the ranks still disagree.
  const ShownSite &other = shown.otherRank < 0 ? shown.first : shown.other;
  return fail(context, COMMRT_ERR_MISMATCH,
              "the schedules differ, first at collective " + std::to_string(index) + ": rank 0 has " +
                  shown.first.text + "; rank " + std::to_string(std::max(shown.otherRank, 0)) + " has " + other.text);
}

int32_t ScheduleComparison::run() {
  prefix.assign(numSites() + 1, 0);
  for (int64_t i = 0; i < numSites(); ++i)
    prefix[i + 1] = mix(prefix[i], hashSite(sites[i]));
  Presented all = {{{prefix[numSites()], numSites()}, context->rank},
                   {signature, context->rank},
                   numSites(),
                   {static_cast<int64_t>(context->messages.size()), context->announcesMessages}};
  if (int32_t status = combineRanks(context, comparingSchedules, &all, sizeof(all), combinePresented))
    return status;
  messages = all.messages;
  if (all.schedule.otherRank >= 0) {
    int64_t first = 0;
    int32_t status = bisect(all.shortest, first);
    return status ? status : reportSite(first);
  }
  if (all.signature.otherRank >= 0)
    return fail(context, COMMRT_ERR_MISMATCH,
                "the schedule signatures differ, rank 0 has " + std::to_string(all.signature.first) + ", rank " +
                    std::to_string(all.signature.otherRank) + " has " + std::to_string(all.signature.other) +
                    ", though their lists of collectives are alike: they were compiled from different programs");
  return COMMRT_OK;
}

int32_t commrt_program_begin(commrt_context *context, uint64_t signature, const commrt_site *sites, int64_t numSites) {
  if (!context)
    return COMMRT_ERR_INVALID;
  if (int32_t status = refuseInCapture(context, "the begin of a program"))
    return status;
  if (numSites < 0 || (numSites > 0 && !sites))
    return fail(context, COMMRT_ERR_INVALID, "commrt_program_begin: the sites are NULL");
  ScheduleComparison comparison{context, signature};
  comparison.add(sites, numSites);
  if (int32_t status = comparison.run())
    return status;
  if (int32_t status = compareMessages(context, comparison.messages))
    return status;
  context->sites = sites;
  context->numSites = numSites;
  return tracesDevice(context) ? alignClocks(context) : COMMRT_OK;
}

int32_t commrt_program_begin_packed(commrt_context *context, uint64_t signature, const int64_t *sites, int64_t numSites,
                                    const char *strings) {
  if (!context)
    return COMMRT_ERR_INVALID;
  if (numSites < 0 || (numSites > 0 && (!sites || !strings)))
    return fail(context, COMMRT_ERR_INVALID, "commrt_program_begin_packed: the sites are NULL");
  context->packedSites.clear();
  for (int64_t i = 0; i < numSites; ++i, sites += 6)
    context->packedSites.push_back({static_cast<int32_t>(sites[0]), static_cast<int32_t>(sites[1]), sites[2],
                                    strings + sites[3], strings + sites[4], sites[5]});
  return commrt_program_begin(context, signature, context->packedSites.data(), numSites);
}

int32_t commrt_program_end(commrt_context *context) {
  if (!context)
    return COMMRT_ERR_INVALID;
  if (context->isCapturing)
    return refuseInCapture(context, "the end of the program");
  int32_t status = waitAll(context);
  if (status == COMMRT_OK && context->job->device)
    status = waitStreams(context);
  for (commrt_graph *graph : context->graphs)
    status = status ? status : readGraphTimes(*graph);
  if (status == COMMRT_OK && tracesDevice(context)) {
    resolveTrace(context);
    status = exchangeBegins(context);
  }
  releaseArenas(context);
  char value = 0;
  if (status == COMMRT_OK)
    status = combineRanks(context, "ending the program", &value, sizeof(value), combineNothing);
  context->sites = nullptr;
  context->numSites = 0;
  return status;
}
