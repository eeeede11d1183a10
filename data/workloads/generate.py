#!/usr/bin/env python3
"""Writes the parameter lists of the six models of the study, from their architectures' definitions.

    python3 data/workloads/generate.py            rewrites data/workloads/*.json

A list is in the order in which the model registers its parameters (what `model.parameters()` yields),
each once: a
tied weight counts where it is first seen. The shapes follow from the published architectures:
ResNet: He et al. 2016 (bottleneck blocks 3-4-6-3 and 3-4-23-3, stride in the 3x3 convolution, 1000 classes).
BERT: Devlin et al. 2019 with the two-class sequence classification head (12 x 768, 24 x 1024; vocabulary
30522).
GPT-2: Radford et al. 2019, language model head tied to the token embedding (36 x 1280, 48 x 1600;
vocabulary 50257).
Nothing is imported, so that the lists do not depend on a library's version; tests/ddp checks totals and
bucket counts.
"""

import json
import pathlib


def batch_norm(name, channels):
    return [(f"{name}.weight", [channels]), (f"{name}.bias", [channels])]


def linear(name, inputs, outputs):
    return [(f"{name}.weight", [outputs, inputs]), (f"{name}.bias", [outputs])]


def norm(name, width):
    return [(f"{name}.weight", [width]), (f"{name}.bias", [width])]


def resnet(blocks):
    out = [("conv1.weight", [64, 3, 7, 7])] + batch_norm("bn1", 64)
    channels = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            at = f"layer{stage + 1}.{block}"
            out += [(f"{at}.conv1.weight", [width, channels, 1, 1])] + batch_norm(f"{at}.bn1", width)
            out += [(f"{at}.conv2.weight", [width, width, 3, 3])] + batch_norm(f"{at}.bn2", width)
            out += [(f"{at}.conv3.weight", [4 * width, width, 1, 1])] + batch_norm(
                f"{at}.bn3", 4 * width
            )
            if block == 0:
                out += [(f"{at}.downsample.0.weight", [4 * width, channels, 1, 1])]
                out += batch_norm(f"{at}.downsample.1", 4 * width)
            channels = 4 * width
    return out + linear("fc", channels, 1000)


def bert(layers, width, vocabulary=30522, positions=512, classes=2):
    out = [
        ("embeddings.word.weight", [vocabulary, width]),
        ("embeddings.position.weight", [positions, width]),
        ("embeddings.type.weight", [2, width]),
    ] + norm("embeddings.norm", width)
    for layer in range(layers):
        at = f"layer.{layer}"
        for part in ("query", "key", "value", "attention_output"):
            out += linear(f"{at}.{part}", width, width)
        out += norm(f"{at}.attention_norm", width)
        out += linear(f"{at}.intermediate", width, 4 * width) + linear(f"{at}.output", 4 * width, width)
        out += norm(f"{at}.output_norm", width)
    return out + linear("pooler", width, width) + linear("classifier", width, classes)


def gpt2(layers, width, vocabulary=50257, positions=1024):
    # GPT-2's linear layers keep their weight as [inputs, outputs].
    def conv1d(name, inputs, outputs):
        return [(f"{name}.weight", [inputs, outputs]), (f"{name}.bias", [outputs])]

    out = [("wte.weight", [vocabulary, width]), ("wpe.weight", [positions, width])]
    for layer in range(layers):
        at = f"h.{layer}"
        out += norm(f"{at}.ln_1", width) + conv1d(f"{at}.attn.c_attn", width, 3 * width)
        out += conv1d(f"{at}.attn.c_proj", width, width) + norm(f"{at}.ln_2", width)
        out += conv1d(f"{at}.mlp.c_fc", width, 4 * width) + conv1d(f"{at}.mlp.c_proj", 4 * width, width)
    return out + norm("ln_f", width)


MODELS = {
    "resnet50": (
        "ResNet-50",
        resnet([3, 4, 6, 3]),
        "He et al., Deep Residual Learning, 2016, table 1",
        64,
        "224x224",
    ),
    "resnet101": (
        "ResNet-101",
        resnet([3, 4, 23, 3]),
        "He et al., Deep Residual Learning, 2016, table 1",
        64,
        "224x224",
    ),
    "bert-base": ("BERT-Base", bert(12, 768), "Devlin et al., BERT, 2019, section 3", 32, "128 tokens"),
    "bert-large": (
        "BERT-Large",
        bert(24, 1024),
        "Devlin et al., BERT, 2019, section 3",
        32,
        "128 tokens",
    ),
    "gpt2-large": ("GPT2-Large", gpt2(36, 1280), "Radford et al., 2019, table 2", 4, "512 tokens"),
    "gpt2-xl": ("GPT2-XL", gpt2(48, 1600), "Radford et al., 2019, table 2", 4, "512 tokens"),
}


def main():
    folder = pathlib.Path(__file__).parent
    for key, (name, parameters, source, batch, sample) in MODELS.items():
        lines = [json.dumps({"name": n, "shape": s}) for n, s in parameters]
        head = {
            "schema": "sealring-workload-1",
            "id": key,
            "name": name,
            "dtype": "fp32",
            "provenance": f"{source}; written by data/workloads/generate.py",
            "batch_per_gpu": batch,
            "sample": sample,
        }
        text = json.dumps(head)[:-1] + ',\n "parameters": [\n  ' + ",\n  ".join(lines) + "\n ]}\n"
        (folder / f"{key}.json").write_text(text)


if __name__ == "__main__":
    main()
