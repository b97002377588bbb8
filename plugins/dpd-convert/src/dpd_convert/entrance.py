"""The load balancer in front of the router."""

from __future__ import annotations

from .conversion import Conversion

_PREFIX = "alb.ingress.kubernetes.io"
# Where the router answers a load balancer.
_HEALTH_PATHS = ("/health", "/ready")


def convert(conversion: Conversion) -> None:
    """Write an Ingress of the AWS load balancer controller, when the manifest says one."""
    annotations: dict[str, str] = {}
    if path := conversion.get("loadBalancer.healthCheckPath"):
        if path in _HEALTH_PATHS:
            annotations[f"{_PREFIX}/healthcheck-path"] = path
        else:
            reason = "the router answers /health and /ready; the chart's own /ready is taken"
            conversion.leave("loadBalancer.healthCheckPath", path, reason)
    if algorithm := conversion.get("loadBalancer.routingAlgorithm"):
        attribute = f"load_balancing.algorithm.type={algorithm}"
        annotations[f"{_PREFIX}/target-group-attributes"] = attribute
    certificate = "tlsConfig.customCertificateConfig"
    if arn := conversion.get(f"{certificate}.acmArn"):
        annotations[f"{_PREFIX}/certificate-arn"] = arn
    hosts = [host] if (host := conversion.get(f"{certificate}.domainName")) else []
    if not (conversion.get("loadBalancer") or hosts or annotations):
        conversion.note(
            "HyperPod puts a load balancer in front of an endpoint; here clients reach the Service "
            "of the router within the cluster. Set router.ingress for a load balancer"
        )
        return
    conversion.set("router.ingress", {"enabled": True, "className": "alb"})
    if annotations:
        conversion.set("router.ingress.annotations", annotations)
    if hosts:
        conversion.set("router.ingress.hosts", hosts)
