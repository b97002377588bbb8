"""Values files as a new user might write them wrongly.

Each refusal names the key, its value, why it cannot be, and the way out.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from .conftest import Helm


@dataclass(frozen=True)
class Wrong:
    """A values file, and the four parts of the one line that refuses it."""

    values: str
    key: str
    value: str
    reason: str
    way_out: str


WRONG: dict[str, Wrong] = {
    "a model split over six GPUs": Wrong(
        """
# Llama on HyperPod, two of eight GPUs are for something else
model:
  name: meta-llama/Llama-3.3-70B-Instruct
  tensorParallelSize: 6
instanceTypes: [ml.p5.48xlarge]
""",
        "model.tensorParallelSize: ",
        "6 ",
        "does not divide the 8 GPUs of ml.p5.48xlarge, so that some would stand idle",
        "choose 1, 2, 4 or 8",
    ),
    "a model whose heads do not fall evenly on eight GPUs": Wrong(
        """
model:
  name: Qwen/Qwen2.5-7B-Instruct
  tensorParallelSize: 8
""",
        "model.tensorParallelSize: ",
        "8 ",
        "does not divide the 28 attention heads of Qwen/Qwen2.5-7B-Instruct",
        "choose one that does",
    ),
    "a long context and a small buffer": Wrong(
        """
# 131072 tokens x 80 layers x 2 x 128 x 2 bytes on each rank
model:
  maxLen: 131072
kvTransfer:
  bufferSize: 2147483648
router:
  threshold: 8192
""",
        "kvTransfer.bufferSize: ",
        "2147483648 ",
        "holds no prompt of model.maxLen (131072 tokens), whose KV has 5368709120 bytes",
        "set it to 5368709120 or more, or lower model.maxLen",
    ),
    "a model that is too large for the GPUs": Wrong(
        """
model:
  name: meta-llama/Llama-3.1-405B-Instruct
  tensorParallelSize: 8
kvTransfer:
  bufferSize: 17179869184
""",
        "model.tensorParallelSize: ",
        "each GPU of 8 ",
        "gets 101463347200 bytes of weights, more than vLLM's own 0.75 of the 85899345920",
        "raise it or --gpu-memory-utilization, choose other instanceTypes, or set "
        "model.shape.weightBytes",
    ),
    "a folder for the shared cache, and no file system there": Wrong(
        """
cache:
  l2:
    type: file
    address: /mnt/kv
""",
        "cache.l2.address: ",
        '"/mnt/kv"',
        "each would keep its own, on a file system that is read-only",
        "mount a shared one there by prefill.volumes and prefill.volumeMounts",
    ),
    "the name of a pull secret alone": Wrong(
        """
image:
  repository: registry.example.com/vllm
imagePullSecrets: [regcred]
""",
        "imagePullSecrets: ",
        '"regcred" ',
        "is a name alone, but Kubernetes takes maps",
        "write it as {name: regcred}",
    ),
    "no engines at night": Wrong(
        """
prometheusAddress: http://prometheus-server.monitoring
prefill:
  autoscaling:
    type: keda
    minReplicas: 0
""",
        "prefill.autoscaling.minReplicas: ",
        "0,",
        "nothing would start the first one",
        "add to prefill.autoscaling.triggers one that needs no pod, such as of type cron",
    ),
    "vLLM's flags copied from a command line": Wrong(
        """
model:
  name: Qwen/Qwen3-32B
  tensorParallelSize: 4
engines:
  args:
    - --max-model-len=32768
    - --gpu-memory-utilization=0.8
""",
        "engines.args: ",
        '"--max-model-len=32768"',
        "is not for setting, since the chart owns --max-model-len",
        "set model.maxLen instead",
    ),
    "KV in eight bits on the decoders only": Wrong(
        """
decode:
  args: [--max-num-seqs=256, --kv-cache-dtype=fp8]
""",
        "engines.args: ",
        '--kv-cache-dtype is "auto" on prefill and "fp8" on decode',
        "one could not read the other's KV",
        "set it once, in engines.args",
    ),
    "instances that the chart does not know": Wrong(
        """
# The T4 nodes that we have already
model:
  name: meta-llama/Llama-3.1-8B-Instruct
  tensorParallelSize: 1
instanceTypes: [g4dn.12xlarge]
kvTransfer:
  backend: UCX
""",
        "instanceTypes: ",
        "g4dn.12xlarge ",
        "is not in files/instances.yaml, so what a node has is not known",
        'set engines.resources.limits."nvidia.com/gpu" by hand, with engines.resources.requests '
        "(cpu, memory) and engines.shm.size, or choose of g5.12xlarge",
    ),
    "weights in a bucket, but the source left as it is": Wrong(
        """
model:
  name: meta-llama/Llama-3.3-70B-Instruct
  source:
    path: llama-3.3-70b
    s3: {bucket: our-weights, region: us-west-2}
""",
        "model.source.s3.bucket: ",
        '"our-weights"',
        "is not used, since model.source.type is huggingFace",
        "set that to s3, or remove it",
    ),
    "a small instance, and KV over EFA": Wrong(
        """
# The cheapest node with an L40S
model:
  name: Qwen/Qwen3-8B
  tensorParallelSize: 1
instanceTypes: [g6e.2xlarge]
""",
        "kvTransfer.backend: ",
        "LIBFABRIC ",
        "moves KV over EFA, which g6e.2xlarge does not have",
        "set it to UCX, or choose other instanceTypes",
    ),
    "a long context that the GPU does not hold beside the weights": Wrong(
        """
# 131072 tokens x 64 layers x 2 x 8 heads x 128 x 2 bytes
model:
  name: Qwen/Qwen3-32B
  maxLen: 131072
  tensorParallelSize: 1
instanceTypes: [ml.p5e.48xlarge]
engines:
  args: [--gpu-memory-utilization=0.6]
kvTransfer:
  bufferSize: 34359738368
""",
        "model.maxLen: ",
        "131072 ",
        "tokens have 34359738368 bytes of KV on each GPU, which with 65524246528 bytes of weights "
        "is more than vLLM's own 0.6 of the 151397597184",
        "lower it, raise model.tensorParallelSize or --gpu-memory-utilization, or set "
        "model.shape.weightBytes",
    ),
    "all of a small node": Wrong(
        """
model:
  name: meta-llama/Llama-3.1-8B-Instruct
  tensorParallelSize: 1
instanceTypes: [g6e.8xlarge]
decode:
  resources:
    requests: {cpu: "32", memory: 200Gi}
""",
        "decode.resources: ",
        "32 CPUs ",
        "are more than the 31.36 that a node of g6e.8xlarge leaves to pods of its 32",
        "ask for less or choose other instanceTypes",
    ),
    "below one switch of a layer that there is not": Wrong(
        """
placement:
  networkNodeLayer: 4
""",
        "placement.networkNodeLayer: ",
        "4,",
        "EC2 tells 3 layers of the network of ml.p5.48xlarge",
        "set it to 3 or less",
    ),
    "more of the GPU for vLLM": Wrong(
        """
engines:
  args: [--gpu-memory-utilization=0.9]
""",
        "kvTransfer.bufferSize: ",
        "8589934592 ",
        "does not fit beside vLLM's own 0.9 of the 85899345920 bytes of a GPU of ml.p5.48xlarge",
        "lower it, or set --gpu-memory-utilization=0.80",
    ),
    "no prefillers for now": Wrong(
        """
prefill:
  replicas: 0
""",
        "prefill.replicas: ",
        "0,",
        "the router gets ready only when a prefill engine answers, so without one it serves "
        "nothing",
        "set it to 1 or more, router.mode to never, or router.engines.prefill",
    ),
    "a smaller router": Wrong(
        """
router:
  resources:
    limits:
      memory: 768Mi
""",
        "router.resources: ",
        "memory ",
        "is 1Gi in requests and 768Mi in limits, but a request is at most its limit",
        "lower that, or raise the limit",
    ),
    "both roles on one node that has room for one": Wrong(
        """
# One p5 for a first try
kvTransfer:
  backend: UCX
placement:
  sameNode: true
  separateNodes: false
""",
        "placement.sameNode: ",
        "true,",
        "for 1 prefill and 1 decode engines together, 16 nvidia.com/gpu is more than the 8 of "
        "ml.p5.48xlarge",
        "lower model.tensorParallelSize, the numbers of engines or their resources",
    ),
    "weights from a claim, and a tokenizer from Hugging Face": Wrong(
        """
model:
  name: our-llama
  tokenizer: meta-llama/Llama-3.3-70B-Instruct
  source:
    type: pvc
    pvc: {claimName: weights}
""",
        "model.tokenizer: ",
        '"meta-llama/Llama-3.3-70B-Instruct" ',
        "is of Hugging Face, but model.source.type is pvc",
        "set it to a folder in the containers, or leave it empty",
    ),
    "a fixed number and an autoscaler": Wrong(
        """
decode:
  replicas: 4
  autoscaling:
    type: hpa
    maxReplicas: 8
""",
        "decode.replicas: ",
        "4,",
        "decode.autoscaling.type is hpa, which owns the number",
        "remove it, and set decode.autoscaling.minReplicas and maxReplicas",
    ),
    "long answers and a short goodbye": Wrong(
        """
engines:
  drainSeconds: 900
""",
        "engines.terminationGracePeriodSeconds: ",
        "330 ",
        "is too short for engines.drainSeconds (900) and the preStop hook (15) before it",
        "set it to 915 or more",
    ),
    "two nodes' worth of memory for both roles on one": Wrong(
        """
# llama-3.3-70b-2xp5.yaml, and llama-3.3-70b-1xp5.yaml over it
model:
  tensorParallelSize: 4
engines:
  resources:
    requests: {cpu: "90", memory: 1500Gi}
kvTransfer:
  backend: UCX
placement:
  sameNode: true
  separateNodes: false
""",
        "placement.sameNode: ",
        "true,",
        "3000 GiB of memory and huge pages are more than the 1945.6 that a node of ml.p5.48xlarge "
        "leaves to pods of its 2048",
        "lower model.tensorParallelSize, the numbers of engines or their resources",
    ),
    "both roles on one node, over EFA": Wrong(
        """
# One p5 for a first try
model:
  name: meta-llama/Llama-3.1-8B-Instruct
  tensorParallelSize: 4
placement:
  sameNode: true
  separateNodes: false
""",
        "placement.sameNode: ",
        "true,",
        "kvTransfer.backend is LIBFABRIC, and EFA is not used within a node",
        "set it to UCX",
    ),
    "an adapter": Wrong(
        """
engines:
  args: [--enable-lora, "--lora-modules=sql=/adapters/sql"]
  volumes:
    - name: adapters
      persistentVolumeClaim: {claimName: adapters}
  volumeMounts:
    - {name: adapters, mountPath: /adapters}
""",
        "engines.args: ",
        '"--enable-lora"',
        "chunk keys do not hold the adapter, so KV of one adapter would be read by another",
        "remove it",
    ),
    "a region for a zone": Wrong(
        """
placement:
  zone: us-west-2
""",
        "placement.zone: ",
        '"us-west-2" ',
        "is not the name of an availability zone, which nodes have as a label",
        "write a name such as us-west-2a, not an id (usw2-az1) or a region (us-west-2)",
    ),
    "a share of the GPU in percent": Wrong(
        """
engines:
  args: [--gpu-memory-utilization=75%]
""",
        "engines.args: ",
        '"--gpu-memory-utilization=75%" ',
        "is not what vLLM takes",
        "write a fraction above 0 and up to 1, such as 0.75",
    ),
    "KV heads that do not fall evenly on three GPUs": Wrong(
        """
model:
  name: meta-llama/Llama-3.2-3B-Instruct
  tensorParallelSize: 3
instanceTypes: []
engines:
  resources:
    requests: {cpu: "8", memory: 64Gi}
    limits: {nvidia.com/gpu: 3, vpc.amazonaws.com/efa: 1}
""",
        "model.tensorParallelSize: ",
        "3 ",
        "neither divides the 8 KV heads of meta-llama/Llama-3.2-3B-Instruct nor is a multiple",
        "choose one that does or is",
    ),
    "a command line of an older vLLM": Wrong(
        """
engines:
  args: [--gpu-memory-utilization=0.75, --disable-log-requests]
""",
        "engines.args: ",
        '"--disable-log-requests" ',
        "vLLM has it no more, and logs no requests unless --enable-log-requests is given",
        "remove it",
    ),
    "weights to be downloaded to a folder of the image": Wrong(
        """
engines:
  args: [--gpu-memory-utilization=0.75, --download-dir=/models]
""",
        "engines.args: ",
        '--download-dir is "/models"',
        "lies on no volume that the pod can write to",
        "mount one there by engines.volumes and engines.volumeMounts, or choose a folder below",
    ),
    "a sidecar that mounts what the pod does not have": Wrong(
        """
engines:
  sidecars:
    - name: logs
      image: registry.example.com/logs:1
      volumeMounts: [{name: logs, mountPath: /logs}]
""",
        "engines.sidecars: ",
        "logs mounts logs, ",
        "the pod has no volume of that name",
        "add it to engines.volumes",
    ),
    "a threshold that no prompt reaches": Wrong(
        """
model:
  maxLen: 8192
router:
  threshold: 10000
""",
        "router.threshold: ",
        "10000 ",
        "is more than model.maxLen (8192), so no prompt could reach it",
        "lower it, or set router.mode to never",
    ),
    "LMCache set up by its environment": Wrong(
        """
engines:
  env:
    - {name: HF_HUB_OFFLINE, value: "1"}
    - {name: LMCACHE_CHUNK_SIZE, value: "512"}
""",
        "engines.env: ",
        "LMCACHE_CHUNK_SIZE ",
        "is not for setting",
        "set kvTransfer.chunkSize instead",
    ),
    "a cache of weights on the node, and another folder for them": Wrong(
        """
model:
  source:
    huggingFace: {cacheHostPath: /mnt/k8s-disks/0/hf}
engines:
  env: [{name: HF_HOME, value: /data/hf}]
""",
        "engines.env: ",
        'HF_HOME is "/data/hf"',
        "the weights would not be in model.source.huggingFace.cacheHostPath, which is at /home/dpd",
        "remove one of them",
    ),
    "a tag without quotes": Wrong(
        """
image:
  repository: 123456789012.dkr.ecr.us-west-2.amazonaws.com/vllm
  tag: 1.10
""",
        "image.tag: ",
        "1.1 ",
        "is a number to YAML, which may have changed it",
        "write the tag in quotes",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_values_file_is_refused_in_one_line_that_helps(helm4: Helm, name: str) -> None:
    wrong = WRONG[name]
    error = helm4.refusal(wrong.values)
    assert "these values cannot be used:" in error
    (line, *_) = [x for x in error.splitlines() if x.startswith(f"- {wrong.key}")] or [error]
    for part in (wrong.key + wrong.value, wrong.reason, wrong.way_out):
        assert part in line, line


@pytest.mark.parametrize("name", ["an adapter", "a tag without quotes"])
def test_both_helms_say_the_same(helms: dict[str, Helm], name: str) -> None:
    said = [
        [line for line in helm.refusal(WRONG[name].values).splitlines() if line.startswith("- ")]
        for helm in helms.values()
    ]
    assert said[0] == said[1] != []


# What the schema refuses is said in Helm's own words: the key, what it got, and what it wants.
REFUSED_BY_THE_SCHEMA: dict[str, tuple[str, list[str], list[str]]] = {
    "a size with a suffix": (
        "kvTransfer: {bufferSize: 8Gi}",
        ["at '/kvTransfer/bufferSize': got string, want integer"],
        ["kvTransfer.bufferSize: Invalid type. Expected: integer, given: string"],
    ),
    "a number in an environment": (
        "engines: {env: [{name: OMP_NUM_THREADS, value: 8}]}",
        ["at '/engines/env/0/value': got number, want null or string"],
        ["engines.env.0.value: Invalid type. Expected: [string,null], given: integer"],
    ),
    "a token where the name of a Secret belongs": (
        "model: {source: {huggingFace: {tokenSecret: hf_abcdef}}}",
        ["at '/model/source/huggingFace/tokenSecret': got string, want object"],
        ["model.source.huggingFace.tokenSecret: Invalid type. Expected: object, given: string"],
    ),
    "the layout of 0.1.0": (
        "args: [--max-num-seqs=8]\nenv: []\nresources: {}\nshm: {size: 64Gi}",
        ["at '': additional properties ", "'args'", "'env'", "'resources'", "'shm'"],
        [
            f"(root): Additional property {key} is not allowed"
            for key in ("args", "env", "resources", "shm")
        ],
    ),
    "a misspelt role": (
        "prefill: {replica: 2}\ndecoder: {replicas: 2}",
        ["at '': additional properties 'decoder' not allowed", "at '/prefill': additional prop"],
        [
            "(root): Additional property decoder is not allowed",
            "prefill: Additional property replica is not allowed",
        ],
    ),
    "an unknown way to get weights": (
        "model: {source: {type: gcs}}",
        ["at '/model/source/type': value must be one of 'huggingFace', 's3', 'fsx', 'pvc'"],
        [
            "model.source.type: model.source.type must be one of the following: "
            '"huggingFace", "s3", "fsx", "pvc"'
        ],
    ),
}


@pytest.mark.parametrize("name", REFUSED_BY_THE_SCHEMA)
def test_what_the_schema_refuses_is_named_with_what_it_wants(
    helms: dict[str, Helm], name: str
) -> None:
    values, helm4_says, helm3_says = REFUSED_BY_THE_SCHEMA[name]
    for program, said in (("helm4", helm4_says), ("helm3", helm3_says)):
        error = helms[program].refusal(values)
        for part in said:
            assert part in error, error
