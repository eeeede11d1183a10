# Claim: a layer includes only what it links, the links are the arrows that ARCHITECTURE.md draws, and foreign
#   libraries stay in the folders that own them.
# How: the link lists are read from CMakeLists.txt, the includes from every source, and both are compared.

import re

import pytest
from tree import ROOT, code_of, files, hits, includes, name, read, report

# layer -> the layers it may see, as ARCHITECTURE.md draws them (transitively closed).
ARROWS = {
    "base": set(),
    "crypto": {"base"},
    "primitives": {"base"},
    "wire": {"base"},
    "session": {"crypto", "base"},
    "transport": {"crypto", "base"},
    "device": {"wire", "transport", "crypto", "primitives", "base"},
    "control": {"session", "wire", "transport", "crypto", "base"},
    "channel": {"session", "wire", "device", "transport", "crypto", "primitives", "base"},
}
ARROWS["collective"] = set(ARROWS)
ARROWS["ddp"] = set(ARROWS)
ARROWS["study"] = set(ARROWS)
PROGRAMS = {"cli": set(ARROWS), "python": ARROWS["collective"] | {"collective"}}

# Which folders may include a foreign library.
OWNERS = {
    r"openssl/": ("sealring/crypto/", "sealring/device/cpu/"),
    r"cuda|cub/|thrust/|nccl": ("sealring/device/cuda/",),
    r"intel-ipsec-mb": ("sealring/device/cpu/",),
    r"spdlog/": ("sealring/base/",),
    r"torch/|c10|ATen/|pybind11/": ("python/",),
    r"nlohmann/": ("sealring/ddp/", "sealring/study/"),
    r"CLI/": ("cli/",),
    r"hwloc": ("sealring/study/", "sealring/device/cpu/"),
    r"gtest/|gmock/": (),
}
PRODUCT = ("sealring", "cli", "python")


def link_lists():
    """layer -> layers it links, transitively, from the sealring_layer() calls."""
    direct = {}
    script = re.sub(r"#.*", "", read(ROOT / "CMakeLists.txt"))
    for layer, rest in re.findall(r"sealring_layer\((\w+)\s+FOLDERS\b([^)]*)\)", script):
        direct[layer] = set(re.findall(r"\bsealring_(\w+)", rest))
    closed = {}

    def close(layer):
        if layer not in closed:
            closed[layer] = direct[layer].union(*(close(below) for below in direct[layer]))
        return closed[layer]

    for layer in direct:
        close(layer)
    return closed


def test_link_lists_are_the_arrows():
    links = link_lists()
    assert set(links) == set(ARROWS)
    wrong = [
        f"{layer} links {sorted(links[layer] - ARROWS[layer])}"
        for layer in links
        if links[layer] - ARROWS[layer]
    ]
    assert not wrong, report(wrong)


@pytest.mark.parametrize("folder", sorted(ARROWS) + sorted(PROGRAMS))
def test_includes_follow_the_links(folder):
    program = folder in PROGRAMS
    allowed = PROGRAMS[folder] if program else link_lists()[folder] | {folder}
    wrong = []
    for path in files(folder if program else f"sealring/{folder}"):
        for line, included, quoted in includes(read(path)):
            parts = included.split("/")
            if quoted and parts[0] == "sealring":
                if parts[1] not in allowed:
                    wrong.append(f"{name(path)}:{line}: {folder} may not include {included}")
            elif quoted and not (ROOT / included).is_file():
                wrong.append(f'{name(path)}:{line}: write it from the root: "{folder}/..."')
    assert not wrong, report(wrong)


def test_every_included_header_of_ours_exists():
    wrong = [
        f"{name(path)}:{line}: {included}"
        for path in files("sealring", "cli", "python", "tests", "fuzz", "bench")
        for line, included, quoted in includes(read(path))
        if quoted and included.startswith("sealring/") and not (ROOT / included).is_file()
    ]
    assert not wrong, report(wrong)


@pytest.mark.parametrize("library", sorted(OWNERS))
def test_foreign_libraries_stay_with_their_owner(library):
    wrong = [
        f"{name(path)}:{line}: <{included}> belongs in {', '.join(OWNERS[library]) or 'tests'}"
        for path in files(*PRODUCT)
        for line, included, _ in includes(read(path))
        if re.match(library, included)
        and not included.startswith("sealring/")
        and not name(path).startswith(OWNERS[library] or ("tests/",))
    ]
    assert not wrong, report(wrong)


def test_schedules_never_see_keys():
    generators = [
        path
        for path in files("sealring/collective")
        if re.search(r"schedule|ring|hop|one_shot|two_level|direct|tree|simulat|generators", path.stem)
        and "communicator" not in path.stem
    ]
    assert generators
    wrong = [
        f"{name(path)}:{line}: {included}"
        for path in generators
        for line, included, _ in includes(read(path))
        if re.match(r"sealring/(session|crypto|channel|control|transport)/|sealring/base/secret", included)
    ]
    assert not wrong, report(wrong)


def test_crypto_never_sees_ranks():
    wrong = hits(r"\bRank\b", files("sealring/crypto"))
    assert not wrong, report(wrong)


def test_host_code_is_free_of_cuda():
    """All CUDA lives in one folder; only primitives, which both sides run, may ask for the compiler."""
    sources = [path for path in files(*PRODUCT) if not name(path).startswith("sealring/device/cuda/")]
    assert not [name(path) for path in sources if path.suffix in (".cu", ".cuh")]
    wrong = hits(r"\b__(global|shared|device)__\b|\bcuda[A-Z]\w+\(", sources)
    askers = [path for path in sources if not name(path).startswith("sealring/primitives/")]
    wrong += hits(r"__CUDACC__|__CUDA_ARCH__", [path for path in askers if path.name != "host_device.h"])
    wrong = [line for line in wrong if "#define SR_HOST_DEVICE" not in line]
    assert not wrong, report(wrong)
