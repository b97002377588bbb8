"""MIGRATION.md: each key of ours that it names does what its row says, and its examples render."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml
from tests.readme.document import quoted, rows

from .conftest import CHART, ROOT, Helm, Manifests, Values

TEXT = (CHART / "MIGRATION.md").read_text(encoding="utf-8")
DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SECTIONS = {part.partition("\n")[0]: part for part in TEXT.split("\n## ")[1:]}
STACK, SERVICE = "vLLM production-stack", "llm-d-modelservice"
ROWS = [row for name in (STACK, SERVICE) for row in rows(SECTIONS[name])]
OURS = sorted({token for row in ROWS for token in quoted(row[1])})

SAME = object()  # expected is the value itself
ABSENT = object()  # nothing is to be there


class Trial(NamedTuple):
    """A value for a key, the place where it shows up, what is there, and what else it needs.

    A place is "kind path", with * for any thing of a list. Of a role's objects "pod" and
    "container" are parts of its Deployment and "config" is its configuration file.
    """

    value: Any
    place: str
    expected: Any = SAME
    beside: Values = {}  # noqa: RUF012 - never changed

    def seen(self, manifests: Manifests, role: str) -> bool:
        """Whether the role's objects show the value."""
        found = list(at(manifests, role, self.place))
        if self.expected is ABSENT:
            return not found
        return (self.value if self.expected is SAME else self.expected) in found


def at(manifests: Manifests, role: str, place: str) -> Iterator[Any]:
    """What a role's objects have at a place."""
    kind, _, path = place.partition(" ")
    prefix = {"pod": "spec.template.spec.", "container": "spec.template.spec.containers.0."}
    if kind == "config":
        return walk(manifests.config(role), path)
    wanted = "Deployment" if kind in prefix else kind
    objects = [o for (k, n), o in manifests.items() if k == wanted and n.endswith(f"-{role}")]
    return walk(objects, f"*.{prefix.get(kind, '')}{path}")


def walk(document: Any, path: str) -> Iterator[Any]:
    """Everything that is at a dotted path."""
    part, _, rest = path.partition(".")
    if part == "*":
        below = document if isinstance(document, list) else []
    elif isinstance(document, list):
        below = document[int(part) : int(part) + 1]
    else:
        below = [document[part]] if part in (document or {}) else []
    for thing in below:
        yield from walk(thing, rest) if rest else [thing]


def nested(key: str, value: Any) -> Values:
    """Values with one key set."""
    first, _, rest = key.partition(".")
    return {first: nested(rest, value) if rest else value}


def merged(below: Values, above: Values) -> Values:
    """Values laid over others."""
    both = {k for k in below.keys() & above.keys() if isinstance(below[k], dict)}
    return {**below, **above, **{k: merged(below[k], above[k]) for k in both}}


def values_of(token: str, trial: Trial) -> Values:
    """The values of a trial; a key with a value, as "key: value", brings its own."""
    key, _, value = token.partition(": ")
    return merged(trial.beside, nested(key, yaml.safe_load(value) if value else trial.value))


HPA: Values = {"engines": {"autoscaling": {"type": "hpa", "inFlightTokens": 1000}}}
EXTERNAL = "HorizontalPodAutoscaler spec.metrics.*.external.metric.selector.matchLabels"
KEDA: Values = {"engines": {"autoscaling": {"type": "keda"}}, "prometheusAddress": "http://p"}
PVC: Values = {"model": {"source": {"type": "pvc", "pvc": {"claimName": "claim"}}}}
OCI: Values = {"model": {"source": {"type": "image", "image": {"reference": "r/m:1"}}}}
INGRESS: Values = {"router": {"ingress": {"enabled": True, "hosts": ["a.example"]}}}
ROUTE: Values = {"router": {"httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}]}}}
SCRATCH = {"name": "v", "emptyDir": {}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NODES = f"pod affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms.0.matchExpressions.*.values"
TOGETHER = f"pod affinity.podAffinity.{REQUIRED}.*.topologyKey"
AFFINITY: Values = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}
WEIGHTS = {"name": "model", "mountPath": "/model", "readOnly": True}
INIT = {"name": "i", "image": "r/i:1", "volumeMounts": [WEIGHTS]}
TEMPLATE = "Deployment spec.template.metadata"

# Keys that stand for those of either role too.
ENGINES = {
    "engines.args": Trial(["--max-num-seqs=7"], "container args.*", "--max-num-seqs=7"),
    "engines.env": Trial([{"name": "A"}], "container env.*", {"name": "A"}),
    "engines.envFrom": Trial([{"secretRef": {"name": "s"}}], "container envFrom"),
    "engines.resources": Trial(
        {"requests": {"memory": "900Gi"}}, "container resources.requests.memory", "900Gi"
    ),
    "engines.resourceClaims": Trial(
        [{"name": "c", "resourceClaimName": "c"}], "pod resourceClaims"
    ),
    "engines.shm.size": Trial("9Gi", "pod volumes.*.emptyDir.sizeLimit"),
    "engines.volumes": Trial([SCRATCH], "pod volumes.*", SCRATCH),
    "engines.volumeMounts": Trial(
        [{"name": "v", "mountPath": "/v"}], "container volumeMounts.*.mountPath", "/v"
    ),
    "engines.initContainers": Trial([INIT], "pod initContainers", beside=PVC),
    "engines.sidecars": Trial([{"name": "s", "image": "r/s:1"}], "pod containers.*.name", "s"),
    "engines.affinity": Trial(
        AFFINITY, f"pod affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms", []
    ),
    "engines.nodeSelector": Trial({"disk": "nvme"}, "pod nodeSelector"),
    "engines.tolerations": Trial([{"key": "team"}], "pod tolerations.*", {"key": "team"}),
    "engines.annotations": Trial({"a": "b"}, "Deployment metadata.annotations"),
    "engines.podAnnotations": Trial({"a": "b"}, f"{TEMPLATE}.annotations.a", "b"),
    "engines.podLabels": Trial({"a": "b"}, f"{TEMPLATE}.labels.a", "b"),
    "engines.priorityClassName": Trial("high", "pod priorityClassName"),
    "engines.runtimeClassName": Trial("nvidia", "pod runtimeClassName"),
    "engines.schedulerName": Trial("volcano", "pod schedulerName"),
    "engines.hostIPC": Trial(True, "pod hostIPC"),
    "engines.serviceAccount.name": Trial("mine", "pod serviceAccountName"),
    "engines.podSecurityContext": Trial({"runAsUser": 7}, "pod securityContext.runAsUser", 7),
    "engines.securityContext": Trial(
        {"readOnlyRootFilesystem": False}, "container securityContext.readOnlyRootFilesystem", False
    ),
    "engines.strategy": Trial({"type": "Recreate"}, "Deployment spec.strategy"),
    "engines.terminationGracePeriodSeconds": Trial(900, "pod terminationGracePeriodSeconds"),
    "engines.podDisruptionBudget.maxUnavailable": Trial(
        2, "PodDisruptionBudget spec.maxUnavailable"
    ),
    "engines.autoscaling.type": Trial(
        "keda", "ScaledObject spec.scaleTargetRef.kind", "Deployment", KEDA
    ),
    "engines.autoscaling.minReplicas": Trial(2, "ScaledObject spec.minReplicaCount", beside=KEDA),
    "engines.autoscaling.maxReplicas": Trial(9, "ScaledObject spec.maxReplicaCount", beside=KEDA),
    "engines.autoscaling.scaleDownSeconds": Trial(
        70, "ScaledObject spec.cooldownPeriod", beside=KEDA
    ),
    "engines.autoscaling.triggers": Trial(
        [{"type": "cron"}], "ScaledObject spec.triggers.*", {"type": "cron"}, KEDA
    ),
}
for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
    ENGINES[f"engines.{probe}"] = Trial(
        {"failureThreshold": 7}, f"container {probe}.failureThreshold", 7
    )

# Keys by the roles that show them.
TRIALS: dict[str, dict[str, Trial]] = {
    "prefill decode": {
        "commonLabels": Trial({"a": "b"}, "Deployment metadata.labels.a", "b"),
        "model.name": Trial("Qwen/Qwen3-8B", "container args.0"),
        "model.servedName": Trial("chat", "container args.*", "--served-model-name=chat"),
        "model.revision": Trial("abc", "container args.*", "--revision=abc"),
        "model.maxLen": Trial(8192, "container args.*", "--max-model-len=8192"),
        "model.dtype": Trial("bfloat16", "container args.*", "--dtype=bfloat16"),
        "model.tensorParallelSize": Trial(4, "container args.*", "--tensor-parallel-size=4"),
        "model.pipelineParallelSize": Trial(2, "LeaderWorkerSet spec.leaderWorkerTemplate.size"),
        "model.source.huggingFace.tokenSecret.name": Trial(
            "hf", "container env.*.valueFrom.secretKeyRef", {"name": "hf", "key": "token"}
        ),
        "model.source.huggingFace.tokenSecret.key": Trial(
            "HF_TOKEN",
            "container env.*.valueFrom.secretKeyRef.key",
            beside=nested("model.source.huggingFace.tokenSecret.name", "hf"),
        ),
        "model.source.huggingFace.cacheHostPath": Trial("/nvme", "pod volumes.*.hostPath.path"),
        "model.source.type": Trial("pvc", "container args.0", "/model", PVC),
        "model.source.type: pvc": Trial(..., "container volumeMounts.*", WEIGHTS, PVC),
        "model.source.pvc.claimName": Trial(
            "other", "pod volumes.*.persistentVolumeClaim.claimName", beside=PVC
        ),
        "model.source.path": Trial("a/b", "container args.0", "/model/a/b", PVC),
        "model.source.type: image": Trial(..., "container volumeMounts.*", WEIGHTS, OCI),
        "model.source.image.reference": Trial("r/n:2", "pod volumes.*.image.reference", beside=OCI),
        "image.repository": Trial("r/vllm", "container image", "r/vllm:v0.4.3"),
        "image.tag": Trial("v9", "container image", "lmcache/vllm-openai:v9"),
        "image.pullPolicy": Trial("Always", "container imagePullPolicy"),
        "image.binDir": Trial("", "container command", ["vllm", "serve"]),
        "imagePullSecrets": Trial([{"name": "s"}], "pod imagePullSecrets"),
        "instanceTypes": Trial(["p5en.48xlarge"], NODES, ["ml.p5en.48xlarge", "p5en.48xlarge"]),
        "engines.autoscaling.type: external": Trial(..., "Deployment spec.replicas", ABSENT),
        "prometheusAddress": Trial(
            "http://q", "ScaledObject spec.triggers.*.metadata.serverAddress", beside=KEDA
        ),
        "placement.zone": Trial("us-west-2a", NODES, ["us-west-2a"]),
        "placement.separateNodes": Trial(False, "pod affinity.podAntiAffinity", ABSENT),
        "placement.sameNode": Trial(
            True,
            TOGETHER,
            "kubernetes.io/hostname",
            {
                "placement": {"separateNodes": False},
                "kvTransfer": {"backend": "UCX"},
                "model": {"tensorParallelSize": 4},
            },
        ),
        "placement.networkNodeLayer": Trial(3, TOGETHER, "topology.k8s.aws/network-node-layer-3"),
        "kvTransfer.bufferSize": Trial(6442450944, "config pd_buffer_size"),
        "kvTransfer.bufferDevice": Trial("cpu", "config pd_buffer_device"),
        "kvTransfer.backend": Trial("UCX", "config nixl_backends.*"),
        "networkPolicy.metrics": Trial(
            [{"namespaceSelector": {}}],
            "NetworkPolicy spec.ingress.0.from.*",
            {"namespaceSelector": {}},
        ),
    },
    "engine": {
        "engines.serviceAccount.create": Trial(False, "ServiceAccount metadata.name", ABSENT),
    },
    "prefill": {
        "prefill.replicas": Trial(3, "Deployment spec.replicas"),
        "prefill.args": Trial(
            ["--no-enable-prefix-caching"], "container args.*", "--no-enable-prefix-caching"
        ),
        "cache.l1.enabled": Trial(False, "config local_cpu"),
        "cache.l1.sizeGiB": Trial(20, "config max_local_cpu_size"),
        "cache.l2.type": Trial(
            "lmcache", "config remote_url", "lm://kv:1", nested("cache.l2.address", "kv:1")
        ),
        "cache.l2.address": Trial(
            "kv:1", "config remote_url", "lm://kv:1", nested("cache.l2.type", "lmcache")
        ),
    },
    "decode": {
        "decode.replicas": Trial(3, "Deployment spec.replicas"),
        "kvTransfer.ports.init": Trial(9000, "config pd_peer_init_port.0"),
        "kvTransfer.ports.alloc": Trial(9100, "config pd_peer_alloc_port.0"),
    },
    "router": {
        "fullnameOverride": Trial("mine", "Deployment metadata.name", "mine-router"),
        "kvTransfer.ports.notify": Trial(9200, "config notify.port"),
        "router.mode": Trial("never", "config routing.mode"),
        "router.mode: always": Trial(..., "config routing.mode", "always"),
        "router.threshold": Trial(100, "config routing.threshold"),
        "router.engines.prefill": Trial(["p:8000"], "config prefill.addresses"),
        "router.engines.decode": Trial(["d:8000"], "config decode.addresses"),
        "router.replicas": Trial(3, "Deployment spec.replicas"),
        "router.image": Trial({"repository": "r/router"}, "container image", "r/router:v0.4.3"),
        "router.resources": Trial(
            {"requests": {"cpu": "3"}}, "container resources.requests.cpu", "3"
        ),
        "router.strategy": Trial({"type": "Recreate"}, "Deployment spec.strategy"),
        "router.podDisruptionBudget": Trial(
            {"maxUnavailable": 2}, "PodDisruptionBudget spec.maxUnavailable", 2
        ),
        "router.autoscaling.type": Trial("hpa", "HorizontalPodAutoscaler spec.minReplicas", 1),
        "router.autoscaling.cpuPercent": Trial(
            55,
            "HorizontalPodAutoscaler spec.metrics.*.containerResource.target.averageUtilization",
            beside=nested("router.autoscaling.type", "hpa"),
        ),
        "router.service.type": Trial("NodePort", "Service spec.type"),
        "router.service.port": Trial(81, "Service spec.ports.0.port"),
        "router.service.annotations": Trial({"a": "b"}, "Service metadata.annotations"),
        "router.tls.secretName": Trial(
            "cert", "config listen.tls.certFile", "/etc/dpd-tls/tls.crt"
        ),
        "router.ingress.enabled": Trial(True, "Ingress spec.rules.0.http.paths.*.path", "/"),
        "router.ingress.className": Trial("nginx", "Ingress spec.ingressClassName", beside=INGRESS),
        "router.ingress.hosts": Trial(
            ["b.example"], "Ingress spec.rules.*.host", "b.example", INGRESS
        ),
        "router.ingress.tlsSecretName": Trial(
            "cert", "Ingress spec.tls.*.secretName", beside=INGRESS
        ),
        "router.httpRoute.enabled": Trial(
            True, "HTTPRoute spec.parentRefs", [{"name": "gateway"}], ROUTE
        ),
        "router.httpRoute.parentRefs": Trial(
            [{"name": "other"}], "HTTPRoute spec.parentRefs", beside=ROUTE
        ),
        "router.httpRoute.hostnames": Trial(
            ["b.example"], "HTTPRoute spec.hostnames", beside=ROUTE
        ),
    },
}

# What a remark says that we refuse, the values that try it, and the words of the refusal.
REFUSED: dict[str, tuple[Values, str]] = {
    "`m.hf_token`": ({"model": {"source": {"huggingFace": {"token": "hf_x"}}}}, "token"),
    "`m.requestGPUType`": (
        {
            "instanceTypes": [],
            "engines": {"resources": {"limits": {"nvidia.com/mig-4g.71gb": 8}}},
            "kvTransfer": {"backend": "UCX"},
        },
        "asks for no nvidia.com/gpu",
    ),
    "`m.env`": (
        {"engines": {"env": [{"name": "LMCACHE_CHUNK_SIZE", "value": "1"}]}},
        "kvTransfer.chunkSize",
    ),
    "`lmcache.enableController`": ({"router": {"sessionKey": "user"}}, "sessionKey"),
    "`lmcache.nixlBufferSize`": (
        {
            "model": {"name": "meta-llama/Llama-3.1-8B-Instruct", "tensorParallelSize": 1},
            "kvTransfer": {"bufferSize": 1073741824},
        },
        "holds no prompt of model.maxLen",
    ),
    "`m.vllmConfig.enablePrefixCaching`": (
        {"decode": {"args": ["--enable-prefix-caching"]}},
        "prefill.args only",
    ),
    "`m.chatTemplate`": (
        {"decode": {"args": ["--chat-template=/t.jinja"]}},
        "set it in engines.args",
    ),
    "`m.enableLoRA`": ({"engines": {"args": ["--enable-lora"]}}, "KV of one adapter"),
    "`decode.parallelism.tensor`": (
        {"decode": {"args": ["--tensor-parallel-size=4"]}},
        "which both roles share",
    ),
    "`decode.parallelism.data`": (
        {"engines": {"args": ["--data-parallel-size=2"]}},
        "raise replicas",
    ),
    "`c.args`": (
        {"engines": {"args": ["--kv-transfer-config={}", "--max-model-len=9"]}},
        "model.maxLen",
    ),
    "`decode.nodeSelector`": (
        {"engines": {"terminationGracePeriodSeconds": 300}},
        "terminationGracePeriodSeconds",
    ),
    "`decode.extraConfig`": ({"decode": {"extraConfig": {}}}, "extraConfig"),
}

CRON = {"type": "cron", "metadata": {"timezone": "UTC"}}
API_KEY = {
    "name": "VLLM_API_KEY",
    "valueFrom": {"secretKeyRef": {"name": "vllm", "key": "api-key"}},
}

# What a remark says that we do: the values, and the place of both roles where it shows.
DONE: dict[str, tuple[Values, str, Any]] = {
    "`m.vllmConfig.maxNumSeqs`": (
        {"engines": {"args": ["--enable-auto-tool-choice", "--tool-call-parser=hermes"]}},
        "container args.*",
        "--tool-call-parser=hermes",
    ),
    "`m.chatTemplate`": (
        {"engines": {"args": ["--chat-template=/t.jinja"]}},
        "container args.*",
        "--chat-template=/t.jinja",
    ),
    "`m.keda`": (
        merged(KEDA, {"engines": {"autoscaling": {"queueDepth": None, "triggers": [CRON]}}}),
        "ScaledObject spec.triggers",
        [CRON],
    ),
    "`servingEngineSpec.containerPort`": ({}, "Service spec.clusterIP", "None"),
    "`servingEngineSpec.strategy`": (
        {},
        "Deployment spec.strategy.rollingUpdate",
        {"maxSurge": 0, "maxUnavailable": 1},
    ),
    "`servingEngineSpec.securityContext`": ({}, "container readinessProbe.httpGet.port", "http"),
    "`servingEngineSpec.vllmApiKey`": (
        {"engines": {"env": [API_KEY]}},
        "container env.*",
        API_KEY,
    ),
    "`modelArtifacts.uri` with `pvc": (
        merged(PVC, {"model": {"source": {"path": "hub/models--a--b/snapshots/c"}}}),
        "container args.0",
        "/model/hub/models--a--b/snapshots/c",
    ),
    "`decode.volumes`": ({}, "container volumeMounts.*.mountPath", "/home/dpd"),
    "`decode.nodeSelector`": (
        {"engines": {"drainSeconds": 60, "terminationGracePeriodSeconds": 90}},
        "pod terminationGracePeriodSeconds",
        90,
    ),
    "`decode.extraConfig`": ({}, "pod enableServiceLinks", False),
    "`routing.proxy.zap*`": (
        {"engines": {"args": ["--otlp-traces-endpoint=http://o:4317"]}},
        "container args.*",
        "--otlp-traces-endpoint=http://o:4317",
    ),
    "`serviceMonitor`": (HPA, f"{EXTERNAL}.service", "demo-dpd-router"),
    "`decode.monitoring.podmonitor`": ({}, "Service spec.ports.*.name", "http"),
}


def exists(key: str) -> bool:
    """Whether we have a key; a role may say any key of engines."""
    in_engines = re.sub("^(prefill|decode)[.]", "engines.", key)
    return any(list(walk(DEFAULTS, name)) for name in (key, in_engines))


def test_each_row_names_a_key_of_ours_or_says_what_to_do() -> None:
    assert len(ROWS) > 60
    for row in ROWS:
        assert len(row) == 3, row
        assert all(row), row
        assert quoted(row[1]) or row[1] == "–", row
        assert row[2].endswith("."), row


def test_each_key_of_ours_exists() -> None:
    assert [token for token in OURS if not exists(token.partition(":")[0])] == []


def test_each_key_that_a_remark_names_exists() -> None:
    named = [token.partition(":")[0] for row in ROWS for token in quoted(row[2])]
    ours = [key for key in named if "." in key and key.partition(".")[0] in DEFAULTS]
    assert len(ours) > 5
    assert [key for key in ours if not exists(key)] == []


def test_each_file_that_a_remark_names_exists() -> None:
    files = [token for row in ROWS for token in quoted(row[2]) if token.startswith("values/")]
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert files


def test_each_key_of_ours_is_tried() -> None:
    tried = {*ENGINES, *(token for trials in TRIALS.values() for token in trials)}
    assert tried == set(OURS)


def test_no_trial_succeeds_without_its_value(helm4: Helm) -> None:
    manifests = helm4.render()
    every = {**TRIALS, "prefill decode": {**TRIALS["prefill decode"], **ENGINES}}
    idle = [
        token
        for roles, trials in every.items()
        for token, trial in trials.items()
        if any(trial.seen(manifests, role) for role in roles.split())
    ]
    assert idle == []


@pytest.mark.parametrize("place", ["engines", "prefill", "decode"])
def test_a_key_of_engines_shows_on_both_roles_and_that_of_a_role_on_it_alone(
    helm4: Helm, place: str
) -> None:
    values: Values = {}
    for token, trial in ENGINES.items():
        values = merged(values, values_of(token, trial))
    values[place] = values.pop("engines")
    manifests = helm4.render(values)
    for role in ("prefill", "decode"):
        shown = place in ("engines", role)
        wrong = [key for key, trial in ENGINES.items() if trial.seen(manifests, role) != shown]
        assert wrong == [], role


@pytest.mark.parametrize(
    ("roles", "token"), [(roles, token) for roles, trials in TRIALS.items() for token in trials]
)
def test_a_value_shows_up_where_its_row_says(helm4: Helm, roles: str, token: str) -> None:
    trial = TRIALS[roles][token]
    manifests = helm4.render(values_of(token, trial))
    assert [role for role in roles.split() if not trial.seen(manifests, role)] == []


@pytest.mark.parametrize("theirs", REFUSED)
def test_what_a_row_says_is_refused_is(helm4: Helm, theirs: str) -> None:
    assert [row for row in ROWS if row[0].startswith(theirs)]
    values, words = REFUSED[theirs]
    assert words in helm4.refusal(values)


@pytest.mark.parametrize("theirs", DONE)
def test_what_a_row_says_is_done_is(helm4: Helm, theirs: str) -> None:
    assert [row for row in ROWS if row[0].startswith(theirs)]
    values, place, expected = DONE[theirs]
    manifests = helm4.render(values)
    for role in ("prefill", "decode"):
        assert expected in at(manifests, role, place)


def test_a_release_without_prefillers_is_possible(helm4: Helm) -> None:
    manifests = helm4.render({"prefill": {"replicas": 0}, "router": {"mode": "never"}})
    assert list(at(manifests, "prefill", "Deployment spec.replicas")) == [0]


def examples(section: str) -> tuple[Values, Values]:
    """Their values and ours."""
    theirs, ours = re.findall(r"^```yaml\n(.*?)^```$", SECTIONS[section], re.M | re.S)
    return yaml.safe_load(theirs), yaml.safe_load(ours)


def flag(manifests: Manifests, role: str, name: str) -> str | None:
    """The value of a flag of a role's engine."""
    values = [a.partition("=")[2] for a in manifests.container(role)["args"] if a.startswith(name)]
    return values[0] if values else None


def test_the_example_of_production_stack_gives_the_same(helm: Helm) -> None:
    theirs, ours = examples(STACK)
    manifests = helm.render(ours)
    specs = theirs["servingEngineSpec"]["modelSpec"]
    by_role = {spec["lmcacheConfig"]["kvRole"]: spec for spec in specs}
    for role, kv_role in (("prefill", "kv_producer"), ("decode", "kv_consumer")):
        spec, container = by_role[kv_role], manifests.container(role)
        vllm, lmcache = spec["vllmConfig"], spec["lmcacheConfig"]
        assert list(at(manifests, role, "Deployment spec.replicas")) == [spec["replicaCount"]]
        assert container["image"] == f"{spec['repository']}:{spec['tag']}"
        assert container["args"][0] == spec["modelURL"]
        assert flag(manifests, role, "--max-model-len=") == str(vllm["maxModelLen"])
        assert flag(manifests, role, "--tensor-parallel-size=") == str(spec["requestGPU"])
        utilization = flag(manifests, role, "--gpu-memory-utilization=")
        assert utilization == str(vllm["gpuMemoryUtilization"])
        seqs = vllm.get("maxNumSeqs")
        assert flag(manifests, role, "--max-num-seqs=") == (str(seqs) if seqs else None)
        assert set(vllm.get("extraArgs", [])) == {"--enforce-eager"} & set(container["args"])
        assert container["resources"] == {
            "requests": {
                "cpu": spec["requestCPU"],
                "memory": spec["requestMemory"],
                "nvidia.com/gpu": spec["requestGPU"],
            },
            "limits": {"nvidia.com/gpu": spec["requestGPU"]},
        }
        token = {"name": spec["hf_token"]["secretName"], "key": spec["hf_token"]["secretKey"]}
        assert token in at(manifests, role, "container env.*.valueFrom.secretKeyRef")
        config = manifests.config(role)
        assert config["pd_role"] == lmcache["nixlRole"]
        assert config["pd_buffer_size"] == int(lmcache["nixlBufferSize"])
        assert config["pd_buffer_device"] == lmcache["nixlBufferDevice"]
        assert config["nixl_backends"] == ["UCX"]
    cache = int(by_role["kv_producer"]["lmcacheConfig"]["cpuOffloadingBufferSize"])
    assert manifests.config("prefill")["max_local_cpu_size"] == cache
    assert manifests.config("router")["routing"]["mode"] == "always"


def test_the_example_of_llm_d_gives_the_same(helm: Helm) -> None:
    theirs, ours = examples(SERVICE)
    manifests = helm.render(ours)
    artifacts = theirs["modelArtifacts"]
    for role in ("prefill", "decode"):
        (vllm,) = theirs[role]["containers"]
        tensor = theirs[role]["parallelism"]["tensor"]
        container = manifests.container(role)
        assert list(at(manifests, role, "Deployment spec.replicas")) == [theirs[role]["replicas"]]
        assert f"hf://{container['args'][0]}" == artifacts["uri"]
        assert flag(manifests, role, "--served-model-name=") == artifacts["name"]
        assert flag(manifests, role, "--tensor-parallel-size=") == str(tensor)
        assert container["resources"]["limits"]["nvidia.com/gpu"] == tensor
        # Half the GPUs of a p5.48xlarge, and so half of its 32 EFA devices.
        assert container["resources"]["limits"]["vpc.amazonaws.com/efa"] == 16
        own = [a for a in vllm["args"] if not a.startswith("--kv-transfer-config")]
        assert own
        assert set(own) <= set(container["args"])
        assert vllm["env"]
        assert all(variable in container["env"] for variable in vllm["env"])
        token = {"name": artifacts["authSecretName"], "key": "HF_TOKEN"}
        assert token in at(manifests, role, "container env.*.valueFrom.secretKeyRef")
        assert manifests.config(role)["nixl_backends"] == ["LIBFABRIC"]


def test_hyperpod_is_led_to_the_converter_and_step_by_step_from_there(helm4: Helm) -> None:
    text = SECTIONS["HyperPod"]
    assert "`plugins/dpd-convert`" in text
    readme = (ROOT / "plugins" / "dpd-convert" / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^```bash\n(.*)\n```$", readme, re.M)  # run in tests/convert
    assert f"`{command}`" in text
    assert [int(number) for number in re.findall(r"^(\d)\. ", text, re.M)] == [1, 2, 3, 4, 5, 6]
    keys = [key for key in quoted(text) if key.startswith("router.")]
    assert len(keys) == 2
    assert [key for key in keys if not exists(key)] == []
    service = helm4.render(release="dpd")["Service", "dpd-router"]
    assert "`RELEASE-router`" in text
    assert f"`router.service.port` ({service['spec']['ports'][0]['port']})" in text
