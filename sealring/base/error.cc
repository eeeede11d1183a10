#include "sealring/base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "sealring/base/displayed.h"

namespace sealring {
namespace {

constexpr std::array kCodes{
    CodeInfo{Code::ok, "OK", "Nothing went wrong.", ""},
    CodeInfo{Code::invalid_argument, "INVALID_ARGUMENT", "An argument is outside what the call takes.",
             "correct the argument that the message names"},
    CodeInfo{Code::unsupported, "UNSUPPORTED", "This operation, type or combination does not exist here.",
             "see the table op x dtype x device in the README"},
    CodeInfo{Code::environment, "ENVIRONMENT", "An environment variable is unknown or has a bad value.",
             "correct or unset the variable; the README lists all SEALRING_ variables"},
    CodeInfo{Code::file, "FILE", "A file could not be read or written.",
             "check the path and its permissions"},
    CodeInfo{Code::no_space, "NO_SPACE", "There is no space left to write.",
             "free space or choose another folder"},
    CodeInfo{Code::key_file, "KEY_FILE", "The job key file breaks a rule of ownership, mode or content.",
             "make one with `sealring keygen FILE`, keep it at mode 0600 and owned by the user of the job"},
    CodeInfo{Code::no_identity, "NO_IDENTITY", "No identity is configured, so nobody could be recognised.",
             "run `sealring keygen job.key`, copy it to every host and set SEALRING_JOB_KEY_FILE=job.key"},
    CodeInfo{Code::port, "PORT", "A port could not be opened.",
             "free the port, or set SEALRING_PORT_RANGE or MASTER_PORT to another"},
    CodeInfo{Code::store, "STORE", "The rendezvous store could not be used.",
             "check that rank 0 runs, the address is right and the network lets it through"},
    CodeInfo{Code::forked, "FORKED", "A forked child used the group of its parent.",
             "start processes with the spawn method, or create a group of its own in the child"},
    CodeInfo{Code::results, "RESULTS", "A results file is truncated, edited or of another version.",
             "measure again, or take the file as `sealring study` wrote it"},
    CodeInfo{Code::interface_name, "INTERFACE_NAME", "No network interface fits SEALRING_SOCKET_IFNAME.",
             "choose one of the candidates that the message lists"},
    CodeInfo{Code::out_of_memory, "OUT_OF_MEMORY", "Memory could not be had.",
             "use smaller tensors or segments"},
    CodeInfo{Code::mixed_backend, "MIXED_BACKEND", "A backend string mixes sealring with another backend.",
             "say \"sealring\" alone; SEALRING_ALLOW_MIXED=1 accepts plaintext for the other device"},
    CodeInfo{Code::required, "REQUIRED", "Another backend was asked for while sealring is required.",
             "use backend \"sealring\", or start without SEALRING_REQUIRE"},
    CodeInfo{Code::version_mismatch, "VERSION_MISMATCH", "A library differs from the one this was built for.",
             "reinstall with `pip install --no-build-isolation .`"},
    CodeInfo{Code::fd_limit, "FD_LIMIT", "The limit of open files is reached.", "raise it with `ulimit -n`"},
    CodeInfo{Code::gpu_absent, "GPU_ABSENT", "No usable GPU was found.",
             "use CPU tensors, or check the driver"},
    CodeInfo{Code::gpu_unsupported, "GPU_UNSUPPORTED",
             "This GPU or driver is not one the kernels were built for.",
             "build for its architecture; the README lists them"},
    CodeInfo{Code::cuda, "CUDA", "A CUDA call failed.", "see the CUDA error that the message quotes"},
    CodeInfo{Code::noise, "NOISE", "A measurement is noisier than --max-mad allows.",
             "close other programs, pin the ranks, or measure longer"},
    CodeInfo{Code::roster_size, "ROSTER_SIZE", "The ranks disagree on how many they are.",
             "start every rank with the same world size"},
    CodeInfo{Code::duplicate, "DUPLICATE", "Two ranks are the same: rank number, share, nonce or GPU.",
             "give every process its own rank and GPU"},
    CodeInfo{
        Code::self_altered, "SELF_ALTERED", "My own message came back changed from the store.",
        "give the job a prefix of its own; if it has one, find out who changes the store or the network"},
    CodeInfo{Code::version, "VERSION", "A peer speaks another version of the protocol.",
             "install the same release on every host"},
    CodeInfo{Code::suite, "SUITE", "A peer wants another cipher suite, or this one does not exist.",
             "set SEALRING_SUITE to the same value on every rank"},
    CodeInfo{Code::identity, "IDENTITY", "A peer proves itself by another kind of identity.",
             "configure every rank alike: job key, or attestation"},
    CodeInfo{Code::policy_hash, "POLICY_HASH", "A peer follows another policy.",
             "give every rank the same policy file"},
    CodeInfo{Code::config, "CONFIG", "A peer has another setting that must be equal.",
             "make the setting that the message names equal on every rank"},
    CodeInfo{Code::job_id, "JOB_ID", "A peer belongs to another job.", "check prefix, policy and key"},
    CodeInfo{Code::job_key, "JOB_KEY", "A peer proved another job key.",
             "copy the same key file to every host; compare the fingerprints in the logs"},
    CodeInfo{Code::rdv_key, "RDV_KEY", "The store at rank 0 uses another job key.",
             "copy the same key file to every host; compare the fingerprints in the logs"},
    CodeInfo{
        Code::malformed, "MALFORMED", "A message has not the layout it must have.",
        "install the same release on every host; if it is, find out who changes the store or the network"},
    CodeInfo{Code::cpu_parse, "CPU_PARSE", "The CPU's report has not the layout it must have.", ""},
    CodeInfo{Code::cpu_sig, "CPU_SIG", "The signature of the CPU's report is wrong.", ""},
    CodeInfo{Code::cpu_chain, "CPU_CHAIN", "The CPU's certificates do not form a chain.", ""},
    CodeInfo{Code::cpu_root, "CPU_ROOT", "The CPU's certificates end at a root that is not trusted.", ""},
    CodeInfo{Code::cpu_expired, "CPU_EXPIRED", "A certificate of the CPU has expired.", ""},
    CodeInfo{Code::cpu_revoked, "CPU_REVOKED", "A certificate of the CPU was revoked.", ""},
    CodeInfo{Code::cpu_debug, "CPU_DEBUG", "The guest may be debugged by its host.", ""},
    CodeInfo{Code::cpu_vmpl, "CPU_VMPL", "The report was asked for from another privilege level.", ""},
    CodeInfo{Code::cpu_tcb, "CPU_TCB", "The firmware is older than the policy allows.", ""},
    CodeInfo{Code::cpu_measurement, "CPU_MEASUREMENT", "The guest is not one the policy names.", ""},
    CodeInfo{Code::report_data, "REPORT_DATA", "Evidence is genuine but for another key, roster or GPU.",
             "find out who relays or replays evidence; start again with a rendezvous that you trust"},
    CodeInfo{Code::gpu_parse, "GPU_PARSE", "The GPU's report has not the layout it must have.", ""},
    CodeInfo{Code::gpu_nonce, "GPU_NONCE", "The GPU's report answers another nonce: fresh evidence required.",
             ""},
    CodeInfo{Code::gpu_sig, "GPU_SIG", "The signature of the GPU's report is wrong.", ""},
    CodeInfo{Code::gpu_chain, "GPU_CHAIN", "The GPU's certificates do not form a chain.", ""},
    CodeInfo{Code::gpu_root, "GPU_ROOT", "The GPU's certificates end at a root that is not trusted.", ""},
    CodeInfo{Code::gpu_fwid, "GPU_FWID", "The GPU's firmware is not the one its certificate names.", ""},
    CodeInfo{Code::gpu_identity, "GPU_IDENTITY", "The evidence is of another GPU than announced.", ""},
    CodeInfo{Code::gpu_mode, "GPU_MODE", "The GPU is in a mode that the policy refuses.", ""},
    CodeInfo{Code::gpu_rim_missing, "GPU_RIM_MISSING", "No reference measurements for this GPU are at hand.",
             ""},
    CodeInfo{Code::gpu_rim_sig, "GPU_RIM_SIG", "The reference measurements are not signed as they must be.",
             ""},
    CodeInfo{Code::gpu_rim_chain, "GPU_RIM_CHAIN", "The signer of the reference measurements is not trusted.",
             ""},
    CodeInfo{Code::gpu_rim_expired, "GPU_RIM_EXPIRED",
             "The signer of the reference measurements has expired.", ""},
    CodeInfo{Code::gpu_rim_conflict, "GPU_RIM_CONFLICT", "Two reference files claim the same measurement.",
             ""},
    CodeInfo{Code::gpu_measurement, "GPU_MEASUREMENT", "A measurement of the GPU differs from its reference.",
             ""},
    CodeInfo{Code::revocation_unknown, "REVOCATION_UNKNOWN",
             "Whether a certificate was revoked is not known.", ""},
    CodeInfo{Code::pair_auth, "PAIR_AUTH", "A peer does not hold the key that it announced.",
             "find out who, between the ranks, changes messages or answers in a peer's place"},
    CodeInfo{
        Code::confirm, "CONFIRM", "The ranks disagree on what was exchanged.",
        "find out why the store shows different ranks different messages; start again with another store"},
    CodeInfo{Code::post_evidence, "POST_EVIDENCE",
             "A peer could not prove itself again over the finished session.", ""},
    CodeInfo{Code::timeout, "TIMEOUT", "A wait passed its deadline.",
             "look at the ranks that the message names; raise the timeout if they are only slow"},
    CodeInfo{Code::data_tag, "DATA_TAG", "A segment's tag was not accepted; nothing of it was released.",
             "make all ranks call the same operations in the same order; if they do, the data was changed, "
             "replayed or "
             "lost on its way: check the hosts and the network between them, then start a new session"},
    CodeInfo{Code::peer_lost, "PEER_LOST", "A peer is gone.", "look at that rank's own log: it ended first"},
    CodeInfo{Code::aborted, "ABORTED", "Another rank, or the user, ended the session.",
             "look at the rank and reason that the message names"},
    CodeInfo{Code::op_mismatch, "OP_MISMATCH", "Ranks called different operations, sizes or types.",
             "make every rank call the same operations in the same order with equal sizes and types"},
    CodeInfo{Code::launch_order, "LAUNCH_ORDER", "Ranks launched their communicators in different orders.",
             "issue operations in the same order on all ranks"},
    CodeInfo{Code::key_limit, "KEY_LIMIT",
             "A key has reached its hard limit; nothing more is sealed with it.", "split the operation"},
    CodeInfo{Code::seq_exhausted, "SEQ_EXHAUSTED", "A sequence number has reached its last value.",
             "start a new session"},
    CodeInfo{Code::seq_reuse_guard, "SEQ_REUSE_GUARD", "Two operations would have used the same numbers.",
             "issue the operations of one communicator one after the other"},
};

bool before_keys(Code code) {
  const auto number = static_cast<unsigned>(code);
  return number >= 200 && number < 600;
}

}  // namespace

const CodeInfo& code_info(Code code) {
  for (const CodeInfo& entry : kCodes) {
    if (entry.code == code) return entry;
  }
  return kCodes[0];
}

std::span<const CodeInfo> all_codes() { return kCodes; }

const CodeInfo* find_code(std::string_view text) {
  if (text.starts_with("SR-") || text.starts_with("sr-")) text.remove_prefix(3);
  const bool numbered = text.size() > 1 && std::isdigit(static_cast<unsigned char>(text[1])) != 0;
  if (numbered && (text[0] == 'E' || text[0] == 'e')) text.remove_prefix(1);
  unsigned number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool numeric = problem == std::errc{} && end == text.data() + text.size();
  for (const CodeInfo& entry : kCodes) {
    if (numeric && static_cast<unsigned>(entry.code) == number) return &entry;
    const auto same = [](char a, char b) { return a == std::toupper(static_cast<unsigned char>(b)); };
    if (std::equal(entry.name.begin(), entry.name.end(), text.begin(), text.end(), same)) return &entry;
  }
  return nullptr;
}

std::string Error::message() const {
  const CodeInfo& info = code_info(code);
  std::string out = fmt::format("SR-E{}", static_cast<unsigned>(code));
  if (rank >= 0) out += fmt::format(" rank={}", rank);
  if (peer >= 0) out += fmt::format(" peer={}", peer);
  // The fields may quote paths, variables, files and peers: none of them may begin a line of its own.
  if (!stage.empty()) out += fmt::format(" stage={}", displayed(stage));
  if (!expected.empty()) out += fmt::format(" expected={}", displayed(expected));
  if (!got.empty()) out += fmt::format(" got={}", displayed(got));
  out += fmt::format(": {}: {}", info.name, what.empty() ? std::string(info.meaning) : displayed(what));
  const std::string_view hint = next.empty() ? info.hint : std::string_view(next);
  if (!hint.empty()) out += fmt::format("; {}", displayed(hint));
  if (before_keys(code)) out += "; no key was released";
  if (!diagnosis.empty()) out += fmt::format("\n  {}", displayed(diagnosis));
  return out;
}

}  // namespace sealring
