"""What an engine on each instance type asks for, worked out by hand (A32).

GPUs, EFA devices and memory of a GPU are those that AWS publishes. Of vCPUs an engine asks for
half, of memory for seven tenths in whole GiB; a sixteenth of memory is /dev/shm. The P family sets
5120 MiB of huge pages aside.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from .conftest import CHART, Helm, Values

# GPUs, MiB of each GPU, EFA devices, CPUs, memory, /dev/shm, huge pages
WHOLE_NODES: dict[str, tuple[int, int, int, str, str, str, str]] = {
    "p4d.24xlarge": (8, 40960, 4, "48", "806Gi", "72Gi", "5120Mi"),
    "p4de.24xlarge": (8, 81920, 4, "48", "806Gi", "72Gi", "5120Mi"),
    "p5.4xlarge": (1, 81920, 1, "8", "179Gi", "16Gi", "5120Mi"),
    "p5.48xlarge": (8, 81920, 32, "96", "1433Gi", "128Gi", "5120Mi"),
    "p5e.48xlarge": (8, 144384, 32, "96", "1433Gi", "128Gi", "5120Mi"),
    "p5en.48xlarge": (8, 144384, 16, "96", "1433Gi", "128Gi", "5120Mi"),
    "p6-b200.48xlarge": (8, 183359, 8, "96", "1433Gi", "128Gi", "5120Mi"),
    "p6-b300.48xlarge": (8, 275040, 16, "96", "2867Gi", "256Gi", "5120Mi"),
    "g5.xlarge": (1, 22888, 0, "2", "11Gi", "1Gi", ""),
    "g5.2xlarge": (1, 22888, 0, "4", "22Gi", "2Gi", ""),
    "g5.4xlarge": (1, 22888, 0, "8", "44Gi", "4Gi", ""),
    "g5.8xlarge": (1, 22888, 1, "16", "89Gi", "8Gi", ""),
    "g5.12xlarge": (4, 22888, 1, "24", "134Gi", "12Gi", ""),
    "g5.16xlarge": (1, 22888, 1, "32", "179Gi", "16Gi", ""),
    "g5.24xlarge": (4, 22888, 1, "48", "268Gi", "24Gi", ""),
    "g5.48xlarge": (8, 22888, 1, "96", "537Gi", "48Gi", ""),
    "g6.xlarge": (1, 22888, 0, "2", "11Gi", "1Gi", ""),
    "g6.2xlarge": (1, 22888, 0, "4", "22Gi", "2Gi", ""),
    "g6.4xlarge": (1, 22888, 0, "8", "44Gi", "4Gi", ""),
    "g6.8xlarge": (1, 22888, 1, "16", "89Gi", "8Gi", ""),
    "g6.12xlarge": (4, 22888, 1, "24", "134Gi", "12Gi", ""),
    "g6.16xlarge": (1, 22888, 1, "32", "179Gi", "16Gi", ""),
    "g6.24xlarge": (4, 22888, 1, "48", "268Gi", "24Gi", ""),
    "g6.48xlarge": (8, 22888, 1, "96", "537Gi", "48Gi", ""),
    "g6e.xlarge": (1, 45776, 0, "2", "22Gi", "2Gi", ""),
    "g6e.2xlarge": (1, 45776, 0, "4", "44Gi", "4Gi", ""),
    "g6e.4xlarge": (1, 45776, 0, "8", "89Gi", "8Gi", ""),
    "g6e.8xlarge": (1, 45776, 1, "16", "179Gi", "16Gi", ""),
    "g6e.12xlarge": (4, 45776, 1, "24", "268Gi", "24Gi", ""),
    "g6e.16xlarge": (1, 45776, 1, "32", "358Gi", "32Gi", ""),
    "g6e.24xlarge": (4, 45776, 2, "48", "537Gi", "48Gi", ""),
    "g6e.48xlarge": (8, 45776, 4, "96", "1075Gi", "96Gi", ""),
    "g7e.8xlarge": (1, 98304, 1, "16", "179Gi", "16Gi", ""),
    "g7e.12xlarge": (2, 98304, 1, "24", "358Gi", "32Gi", ""),
    "g7e.24xlarge": (4, 98304, 2, "48", "716Gi", "64Gi", ""),
    "g7e.48xlarge": (8, 98304, 4, "96", "1433Gi", "128Gi", ""),
}

# Ranks, EFA devices, CPUs, memory, /dev/shm, huge pages of an engine on a part of a node
PARTS: dict[tuple[str, int], tuple[int, str, str, str, str]] = {
    ("p5.48xlarge", 4): (16, "48", "716Gi", "64Gi", "2560Mi"),
    ("p5.48xlarge", 2): (8, "24", "358Gi", "32Gi", "1280Mi"),
    ("p5.48xlarge", 1): (4, "12", "179Gi", "16Gi", "640Mi"),
    ("p4d.24xlarge", 4): (2, "24", "403Gi", "36Gi", "2560Mi"),
    ("p4d.24xlarge", 1): (1, "6", "100Gi", "9Gi", "640Mi"),
    ("g6e.24xlarge", 2): (1, "24", "268Gi", "24Gi", ""),
    ("g7e.12xlarge", 1): (1, "12", "179Gi", "16Gi", ""),
}

# Layers of the network that EC2's DescribeInstanceTopology returns, by how the type starts; it does
# not take some types at all, and returns three for the others.
LAYERS = {"p6-b200.": 4, "p6-b300.": 4, "p5.4xlarge": 0, "g5.": 0, "g6.": 0}


def values(instance: str, ranks: int) -> Values:
    """Values of a small model that the chart does not know."""
    model = {"name": "org/model", "tensorParallelSize": ranks}
    return {
        "instanceTypes": [instance],
        "model": model,
        "kvTransfer": {"bufferSize": 1073741824},
        "cache": {"l1": {"sizeGiB": 1}},
    }


def check(
    helm: Helm, ranks: int, given: Values, efa: int, cpu: str, memory: str, shm: str, huge: str
) -> None:
    if not efa:
        given["kvTransfer"]["backend"] = "UCX"
    manifests = helm.render(given)
    devices: dict[str, Any] = {"nvidia.com/gpu": ranks}
    devices |= {"vpc.amazonaws.com/efa": efa} if efa else {}
    devices |= {"hugepages-2Mi": huge} if huge else {}
    for role in ("prefill", "decode"):
        container = manifests.container(role)
        assert container["resources"] == {
            "requests": {"cpu": cpu, "memory": memory, **devices},
            "limits": devices,
        }
        volumes = {volume["name"]: volume for volume in manifests.pod(role)["volumes"]}
        assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": shm}


@pytest.mark.parametrize("instance", WHOLE_NODES)
def test_an_engine_on_a_whole_node(helm4: Helm, instance: str) -> None:
    ranks, _, *expected = WHOLE_NODES[instance]
    check(helm4, ranks, values(instance, ranks), *expected)


@pytest.mark.parametrize(("instance", "ranks"), PARTS, ids=str)
def test_an_engine_on_a_part_of_a_node(helm4: Helm, instance: str, ranks: int) -> None:
    check(helm4, ranks, values(instance, ranks), *PARTS[instance, ranks])


def test_a_type_of_which_sources_disagree_needs_its_devices_by_hand(helm4: Helm) -> None:
    given = values("ml.p6e-gb200.36xlarge", 4)
    assert "vpc.amazonaws.com/efa" in helm4.refusal(given)
    given["engines"] = {"resources": {"limits": {"vpc.amazonaws.com/efa": 4}}}
    check(helm4, 4, given, 4, "72", "672Gi", "60Gi", "5120Mi")


def test_the_catalogue_has_these_types_and_the_memory_of_their_gpus() -> None:
    text = (CHART / "files" / "instances.yaml").read_text(encoding="utf-8")
    catalogue: dict[str, dict[str, int | None]] = yaml.safe_load(text)
    assert {*catalogue} == {*WHOLE_NODES, "p6e-gb200.36xlarge"}
    for instance, (_, mib, *_) in WHOLE_NODES.items():
        assert catalogue[instance]["gpuMiB"] == mib
    for instance, facts in catalogue.items():
        layers = [LAYERS[start] for start in LAYERS if instance.startswith(start)]
        assert facts["networkLayers"] == (layers or [3])[0], instance
    assert catalogue["p6e-gb200.36xlarge"]["gpuMiB"] is None
    assert catalogue["p6e-gb200.36xlarge"]["efa"] is None
