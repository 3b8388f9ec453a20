// The schema of a log: each record's keys, once, for the reader and the writer alike.
//
// Describe(v, record) calls v for each key in the order in which it's written:
//   v.Need(key, field)            must be there
//   v.Opt(key, field)             field is a std::optional
//   v.Opt(key, field, fallback)   not written when it equals its fallback
//   v.Request(key, field, need)   a request id, with "inc" beside it
//   v.Within(key, field, min, max[, fallback])   a count with limits (headers)
// and others (OptList, Rows, Tables, Writes, ReasonOrClean, ...) for what isn't one key with one
// value. So a key can't be read under one name and written under another.
#pragma once

#include <concepts>
#include <string_view>
#include <type_traits>

#include "kvfence/config.h"
#include "kvfence/event_log.h"

namespace kvfence {

template <class E, class T>
concept Is = std::same_as<std::remove_const_t<E>, T>;

template <class T>
inline constexpr std::string_view kVerb = "";
template <>
inline constexpr std::string_view kVerb<AdmitEvent> = "admit";
template <>
inline constexpr std::string_view kVerb<AllocEvent> = "alloc";
template <>
inline constexpr std::string_view kVerb<ShareEvent> = "share";
template <>
inline constexpr std::string_view kVerb<ForkEvent> = "fork";
template <>
inline constexpr std::string_view kVerb<CowEvent> = "cow";
template <>
inline constexpr std::string_view kVerb<TrimEvent> = "trim";
template <>
inline constexpr std::string_view kVerb<DropEvent> = "drop";
template <>
inline constexpr std::string_view kVerb<ReleaseEvent> = "release";
template <>
inline constexpr std::string_view kVerb<FreeEvent> = "free";
template <>
inline constexpr std::string_view kVerb<PublishEvent> = "publish";
template <>
inline constexpr std::string_view kVerb<UnpublishEvent> = "unpublish";
template <>
inline constexpr std::string_view kVerb<PinEvent> = "pin";
template <>
inline constexpr std::string_view kVerb<UnpinEvent> = "unpin";
template <>
inline constexpr std::string_view kVerb<ReadyEvent> = "ready";
template <>
inline constexpr std::string_view kVerb<BindRowEvent> = "row";
template <>
inline constexpr std::string_view kVerb<AuditEvent> = "audit";
template <>
inline constexpr std::string_view kVerb<WriteEvent> = "write";
template <>
inline constexpr std::string_view kVerb<ReadEvent> = "read";
template <>
inline constexpr std::string_view kVerb<ScaleEvent> = "scale";
template <>
inline constexpr std::string_view kVerb<RescaleEvent> = "rescale";
template <>
inline constexpr std::string_view kVerb<CopyEvent> = "copy";
template <>
inline constexpr std::string_view kVerb<LogStep> = "step";
template <>
inline constexpr std::string_view kVerb<LogConfirm> = "confirm";
template <>
inline constexpr std::string_view kVerb<RetireEvent> = "retire";
template <>
inline constexpr std::string_view kVerb<LogExpect> = "expect";

template <class V, class E>
void DescribeWhere(V& v, E& e) {
  v.Opt("pool", e.pool, PoolId{});
  v.Opt("rank", e.rank, kAllRanks);
}

// --- ownership -----------------------------------------------------------------------------------

template <class V, Is<AdmitEvent> E>
void Describe(V& v, E& e) {
  v.Need("req", e.name);
  v.Opt("identity", e.identity, IdentityId{});
  v.Opt("rank", e.rank, kAllRanks);
}
template <class V, Is<AllocEvent> E>
void Describe(V& v, E& e) {
  v.Request("req", e.req, true);
  v.Need("pages", e.pages);
  v.Opt("at", e.at);
  DescribeWhere(v, e);
}
template <class V, Is<ShareEvent> E>
void Describe(V& v, E& e) {
  v.Request("req", e.req, true);
  v.Need("pages", e.pages);
  v.Need("tokens", e.tokens);
  v.Opt("at", e.at);
  v.OptList("keys", e.keys);
  v.OptList("digests", e.digests);
  DescribeWhere(v, e);
}
template <class V, Is<ForkEvent> E>
void Describe(V& v, E& e) {
  v.Request("from", e.from, true, "from_inc");
  v.Request("to", e.to, true, "to_inc");
  v.Opt("rank", e.rank, kAllRanks);
}
template <class V, Is<CowEvent> E>
void Describe(V& v, E& e) {
  v.Request("req", e.req, true);
  v.Need("at", e.at);
  v.Need("page", e.page);
  DescribeWhere(v, e);
}
template <class V, Is<TrimEvent> E>
void Describe(V& v, E& e) {
  v.Request("req", e.req, true);
  v.Need("tokens", e.tokens);
  v.Opt("step", e.step);
  v.Opt("rank", e.rank, kAllRanks);
}
template <class V, Is<DropEvent> E>
void Describe(V& v, E& e) {
  v.Request("req", e.req, true);
  v.Need("at", e.at);
  v.Need("n", e.n);
  DescribeWhere(v, e);
}
template <class V, Is<ReleaseEvent> E>
void Describe(V& v, E& e) {
  v.Request("req", e.req, true);
  v.Opt("rank", e.rank, kAllRanks);
}
template <class V, Is<FreeEvent> E>
void Describe(V& v, E& e) {
  v.Need("pages", e.pages);
  DescribeWhere(v, e);
}
template <class V, Is<PublishEvent> E>
void Describe(V& v, E& e) {
  v.Need("key", e.key);
  v.Request("req", e.req, false);
  v.OptAt("at", e.at, static_cast<bool>(e.req));
  v.Opt("identity", e.identity);
  v.Opt("digest", e.digest, NameId{});
  v.Opt("page", e.page);
  v.Opt("from_key", e.from_key);
  DescribeWhere(v, e);
}
template <class V, Is<UnpublishEvent> E>
void Describe(V& v, E& e) {
  v.Need("key", e.key);
  v.Opt("pool", e.pool, PoolId{});
  v.Opt("rank", e.rank, kAllRanks);
}
template <class V, Is<PinEvent> E>
void Describe(V& v, E& e) {
  v.Need("id", e.id);
  v.Need("dir", e.dir);
  v.Need("pages", e.pages);
  v.Request("req", e.req, false);
  v.Opt("at", e.at);
  v.Opt("key", e.key);
  v.Opt("lease", e.lease);
  DescribeWhere(v, e);
}
template <class V, Is<UnpinEvent> E>
void Describe(V& v, E& e) {
  v.Need("id", e.id);
  v.Opt("ok", e.ok, true);
  v.Opt("rank", e.rank, kAllRanks);
}
template <class V, Is<ReadyEvent> E>
void Describe(V& v, E& e) {
  v.Request("req", e.req, true);
  v.Need("tokens", e.tokens);
  v.Opt("rank", e.rank, kAllRanks);
}
template <class V, Is<BindRowEvent> E>
void Describe(V& v, E& e) {
  v.Need("row", e.row);
  v.RequestOrNull("req", e.req);
  v.Opt("rank", e.rank, kAllRanks);
}
template <class V, Is<AuditEvent> E>
void Describe(V& v, E& e) {
  v.Opt("idle", e.idle, false);
  v.Opt("rank", e.rank, kAllRanks);
}

// --- content -------------------------------------------------------------------------------------

template <class V, Is<ContentOf> E>
void Describe(V& v, E& e) {
  v.Request("req", e.req, false);
  v.Opt("at", e.at);
  v.Opt("key", e.key);
}
template <class V, Is<WriteEvent> E>
void Describe(V& v, E& e) {
  v.Need("page", e.page);
  v.Need("first", e.first);
  v.Need("n", e.n);
  v.Need("as", e.as);
  v.Opt("xfer", e.xfer, NameId{});
  v.Opt("sum", e.sum, NameId{});
  DescribeWhere(v, e);
}
template <class V, Is<ReadEvent> E>
void Describe(V& v, E& e) {
  v.Need("page", e.page);
  v.Need("xfer", e.xfer);
  v.Opt("sum", e.sum, NameId{});
  DescribeWhere(v, e);
}
template <class V, Is<ScaleEvent> E>
void Describe(V& v, E& e) {
  v.Need("page", e.page);
  v.Opt("as", e.as);
  DescribeWhere(v, e);
}
template <class V, Is<RescaleEvent> E>
void Describe(V& v, E& e) {
  DescribeWhere(v, e);
}
template <class V, Is<CopyEvent> E>
void Describe(V& v, E& e) {
  v.Need("from", e.from);
  v.Need("to", e.to);
  v.Opt("from_pool", e.from_pool, PoolId{});
  v.Opt("to_pool", e.to_pool, PoolId{});
  v.Opt("xfer", e.xfer, NameId{});
  v.Opt("rank", e.rank, kAllRanks);
}

// --- steps ---------------------------------------------------------------------------------------

template <class V, Is<LogRow> E>
void Describe(V& v, E& e) {
  v.Need("row", e.plan.row);
  v.Request("req", e.plan.req, true);
  v.Need("new", e.plan.new_tokens);
  v.Tables(e.tables, true);
  v.Need("len", e.len);
  v.Writes(e.writes);
  v.Opt("base", e.plan.base);
  v.Opt("reach", e.plan.reach);
  v.Opt("table_epoch", e.plan.table_epoch);
  v.OptList("loads", e.plan.loads);
  v.Drafts(e.plan.draft, e.drafts);
  v.Opt("scales", e.plan.scales, true);
}
template <class V, Is<LogPad> E>
void Describe(V& v, E& e) {
  v.Need("row", e.row);
  v.Tables(e.tables, true);
  v.Need("len", e.len);
  v.Writes(e.writes);
}
template <class V, Is<PrefixPlan> E>
void Describe(V& v, E& e) {
  v.Need("rows", e.rows);
  v.Need("table", e.table);
  v.Opt("pool", e.pool, PoolId{});
}
template <class V, Is<LogStep> E>
void Describe(V& v, E& e) {
  v.Need("step", e.step);
  v.Rows("rows", e.rows);
  v.OptList("pads", e.pads);
  v.OptList("prefix", e.prefix);
  v.Opt("rank", e.rank, RankId{0});
}
template <class V, Is<LogConfirmRow> E>
void Describe(V& v, E& e) {
  v.Need("row", e.row);
  v.Tables(e.tables, false);
}
template <class V, Is<LogConfirm> E>
void Describe(V& v, E& e) {
  v.Need("step", e.step);
  v.OptList("rows", e.rows);
  v.Opt("rank", e.rank, RankId{0});
}
template <class V, Is<RetireEvent> E>
void Describe(V& v, E& e) {
  v.Need("step", e.step);
  v.Opt("rank", e.rank, kAllRanks);
}
template <class V, Is<LogExpect> E>
void Describe(V& v, E& e) {
  v.ReasonOrClean(e.reason, e.clean, e.has_reason);
  v.Request("req", e.req, false);
  v.Opt("page", e.page);
  v.Opt("pool", e.pool);
  v.Opt("at", e.at);
  v.Opt("step", e.step);
  v.Opt("row", e.row);
  v.Opt("rank", e.rank);
}

// --- header --------------------------------------------------------------------------------------

template <class V, Is<PoolConfig> E>
void Describe(V& v, E& e) {
  v.Need("name", e.name);
  v.Within("pages", e.pages, 1, kMaxLogPages);
  v.Within("page_size", e.page_size, 1, kMaxLogPageSize);
  v.Within("window", e.window, 0, UINT32_MAX, uint64_t{0});
  v.Opt("scales", e.scales, false);
  v.Within("width", e.width, 0, kMaxLogWidth, uint64_t{0});
  v.Within("null_page", e.null_page, 0, kMaxLogPages, uint64_t{0});
  v.Opt("skip_slot", e.skip_slot);
  v.Opt("base", e.base);
  v.Opt("page_bytes", e.page_bytes);
  v.Opt("index_bits", e.index_bits);
  v.Opt("space", e.space, std::string());
  v.Entries("entries", e.slot_entries);
  v.Opt("kind", e.kind, PoolKind::kKv);
  v.Interleave("interleave", e.interleave_ranks, e.interleave_stride);
}
template <class V, Is<FenceConfig> E>
void Describe(V& v, E& e) {
  v.Version("kvfence_log");
  v.Need("pools", e.pools);
  v.Within("rows", e.rows, 1, kMaxLogRows);
  v.Within("width", e.width, 1, kMaxLogWidth);
  v.Within("ranks", e.ranks, 1, kMaxLogRanks, uint64_t{1});
  v.Opt("frees", e.frees, Frees::kImplicit);
  v.Opt("reuse", e.reuse, Reuse::kRetired);
  v.Opt("same_step_reads", e.same_step_reads, false);
  v.Opt("level", e.level, Level::kFull);
  v.Opt("about", e.about, std::string());
}

}  // namespace kvfence
