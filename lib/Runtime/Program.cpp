//===- Program.cpp - Compares schedules before anything can hang --------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// Each rank presents a hash of its sequence of collectives. If they differ, the ranks find the first difference by
// bisection over prefix hashes (log2 n exchanges of 8 bytes) and show each other that one collective.
//
//===--------------------------------------------------------------------------------------------===//

#include "Core.h"
#include <algorithm>
#include <cstring>

using namespace commsched::runtime;

namespace {
struct Presented {
  uint64_t signature, hash;
  int64_t numSites;
};

/// What ranks show each other of one site.
struct ShownSite {
  uint64_t hash;
  char text[504];
};

struct Comparison {
  commrt_context *context;
  uint64_t signature;
  std::vector<commrt_site> sites = {}; ///< without sends and receives, which ranks need not have in common
  int64_t altered = -1;                ///< by an injected fault
  std::vector<uint64_t> prefix = {};   ///< prefix[k]: hash of the first k sites

  int64_t numSites() const { return static_cast<int64_t>(sites.size()); }
  void add(const commrt_site *all, int64_t count);

  template <typename T> int32_t exchange(const T &mine, std::vector<T> &all) {
    char text[1024] = "";
    all.resize(context->job->ranks);
    int32_t status = context->job->backend->exchange(context->peer, &mine, sizeof(T), all.data(),
                                                     context->job->timeoutNs, text, sizeof(text));
    if (status == COMMRT_OK)
      return status;
    if (int32_t earlier = latched(context))
      return earlier;
    return fail(context, status, std::string("comparing schedules: ") + text);
  }

  int32_t run();
  int32_t bisect(int64_t shortest, int64_t &first);
  int32_t reportSite(int64_t index);
};
} // namespace

static uint64_t hashSite(const commrt_site &site) {
  uint64_t hash = mix(mix(mix(1, site.kind), site.dtype), site.count);
  for (const char *c = site.group ? site.group : ""; *c; ++c)
    hash = mix(hash, static_cast<unsigned char>(*c));
  return hash;
}

template <typename T, typename Same> static int32_t firstUnlikeRank0(const std::vector<T> &all, Same same) {
  auto it = std::find_if(all.begin(), all.end(), [&](const T &other) { return !same(all[0], other); });
  return it == all.end() ? -1 : static_cast<int32_t>(it - all.begin());
}

void Comparison::add(const commrt_site *all, int64_t count) {
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

/// The number of leading sites in which all ranks agree.
int32_t Comparison::bisect(int64_t shortest, int64_t &first) {
  int64_t low = 0, high = shortest;
  std::vector<uint64_t> all;
  while (low < high) {
    int64_t middle = low + (high - low + 1) / 2;
    if (int32_t status = exchange(prefix[middle], all))
      return status;
    if (firstUnlikeRank0(all, [](uint64_t a, uint64_t b) { return a == b; }) < 0)
      low = middle;
    else
      high = middle - 1;
  }
  first = low;
  return COMMRT_OK;
}

int32_t Comparison::reportSite(int64_t index) {
  ShownSite mine = {};
  std::string text = "no further collective";
  if (index < numSites()) {
    mine.hash = hashSite(sites[index]);
    text = describeSite(sites[index]) + (index == altered ? " [altered by an injected fault]" : "");
  }
  std::memcpy(mine.text, text.data(), std::min(text.size(), sizeof(mine.text) - 1));
  std::vector<ShownSite> all;
  if (int32_t status = exchange(mine, all))
    return status;
  int32_t other = firstUnlikeRank0(all, [](const ShownSite &a, const ShownSite &b) { return a.hash == b.hash; });
  if (other < 0)
    other = 0; // a collision of hashes only; the ranks still disagree
  return fail(context, COMMRT_ERR_MISMATCH,
              "the schedules differ, first at collective " + std::to_string(index) + ": rank 0 has " + all[0].text +
                  "; rank " + std::to_string(other) + " has " + all[other].text);
}

int32_t Comparison::run() {
  prefix.assign(numSites() + 1, 0);
  for (int64_t i = 0; i < numSites(); ++i)
    prefix[i + 1] = mix(prefix[i], hashSite(sites[i]));
  std::vector<Presented> all;
  if (int32_t status = exchange(Presented{signature, prefix[numSites()], numSites()}, all))
    return status;
  int32_t unlike = firstUnlikeRank0(
      all, [](const Presented &a, const Presented &b) { return a.hash == b.hash && a.numSites == b.numSites; });
  if (unlike >= 0) {
    int64_t shortest = numSites(), first = 0;
    for (const Presented &presented : all)
      shortest = std::min(shortest, presented.numSites);
    int32_t status = bisect(shortest, first);
    return status ? status : reportSite(first);
  }
  unlike = firstUnlikeRank0(all, [](const Presented &a, const Presented &b) { return a.signature == b.signature; });
  if (unlike >= 0)
    return fail(context, COMMRT_ERR_MISMATCH,
                "the schedule signatures differ, rank 0 has " + std::to_string(all[0].signature) + ", rank " +
                    std::to_string(unlike) + " has " + std::to_string(all[unlike].signature) +
                    ", though their lists of collectives are alike: they were compiled from different programs");
  return COMMRT_OK;
}

int32_t commrt_program_begin(commrt_context *context, uint64_t signature, const commrt_site *sites, int64_t numSites) {
  if (!context)
    return COMMRT_ERR_INVALID;
  if (int32_t status = latched(context))
    return status;
  if (numSites < 0 || (numSites > 0 && !sites))
    return fail(context, COMMRT_ERR_INVALID, "commrt_program_begin: the sites are NULL");
  Comparison comparison{context, signature};
  comparison.add(sites, numSites);
  if (int32_t status = comparison.run())
    return status;
  context->sites = sites;
  context->numSites = numSites;
  return COMMRT_OK;
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
  int32_t status = waitAll(context);
  if (status == COMMRT_OK) {
    char mine = 1, text[1024] = "";
    std::vector<char> all(context->job->ranks);
    int32_t failed = context->job->backend->exchange(context->peer, &mine, 1, all.data(), context->job->timeoutNs, text,
                                                     sizeof(text));
    status = latched(context);
    if (status == COMMRT_OK && failed != COMMRT_OK)
      status = fail(context, failed, std::string("ending the program: ") + text);
  }
  context->sites = nullptr;
  context->numSites = 0;
  return status;
}
