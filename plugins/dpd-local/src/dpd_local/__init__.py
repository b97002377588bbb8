"""Runs the pods that the dpd chart renders as local processes, without Kubernetes."""

from __future__ import annotations

from dpd_local.cluster import Cluster
from dpd_local.node import Node
from dpd_local.pods import Configuration, Pod, PodError, configuration_of, pods_of
from dpd_local.running import PodFailedError, RunningPod, State

__all__ = [
    "Cluster",
    "Configuration",
    "Node",
    "Pod",
    "PodError",
    "PodFailedError",
    "RunningPod",
    "State",
    "configuration_of",
    "pods_of",
]
