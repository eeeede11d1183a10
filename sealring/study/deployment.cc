#include "sealring/study/deployment.h"

#include <array>

namespace sealring {
namespace {

constexpr std::array kDeployments{
    Deployment{"CPU ranks, CC off", "tcp, sealed by the CPU",
               "network taps and other hosts; not the host itself, which sees the memory",
               "the cost of the crypto, labelled \"CC off\"", true},
    Deployment{"CPU ranks in confidential guests", "tcp, sealed by the CPU",
               "network and other hosts; the host as far as the guest's memory encryption holds",
               "job key, no attestation yet: the key must reach the guest by a way that the host cannot read",
               true},
    Deployment{
        "GPUs, CC off", "fused or staged",
        "network and fabric taps; not the host, which sees the GPU's and CPU's memory",
        "the cost of the crypto, labelled \"CC off\"; C++ and `sealring bench`, no PyTorch tensors yet",
        true},
    Deployment{"Hopper, CC mode, one GPU a VM", "staged (no peer access)", "host, fabric, network",
               "over NCCL; not run in this mode", true},
    Deployment{
        "Hopper, protected-PCIe (8 GPUs, one VM)", "fused",
        "taps on NVLink, which this mode leaves in clear; not a fabric that can read peer-mapped memory",
        "refused by default; a policy can admit it", false},
    Deployment{"Blackwell, CC with NVLink encryption", "hardware inside the domain, sealed between nodes",
               "host, fabric, network", "sealing inside the domain is defence in depth, off by choice",
               false},
    Deployment{"several nodes", "our tcp (CPU ranks); staged over NCCL's network (GPUs)",
               "network, host NICs", "tcp runs today; with NCCL its parsers are in the trusted process",
               true},
};

}  // namespace

std::span<const Deployment> deployments() { return kDeployments; }

DeploymentGuess deployment_of(const Machine& machine) {
  const bool guest = machine.cc != "CC off";
  if (!machine.gpus.empty()) {
    return {&kDeployments[guest ? 3 : 2],
            "a GPU was seen; the C++ library and `sealring bench --device cuda` use it, PyTorch tensors are "
            "sealed on CPUs only"};
  }
  if (guest) return {&kDeployments[1], machine.cc + " was seen; whether it is genuine takes attestation"};
  return {&kDeployments[0], "no GPU and no confidential-guest device were seen"};
}

}  // namespace sealring
