"""The image of all pods."""

from __future__ import annotations

from .conversion import Conversion


def convert(conversion: Conversion) -> None:
    """Write the image's repository, tag and digest, and where its programs are."""
    reference = str(conversion.required("worker.image"))
    name, _, digest = reference.partition("@")
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # the colon of a registry's port
        repository, tag = name, ""
    conversion.set("image.repository", repository)
    if tag or not digest:
        conversion.set("image.tag", tag or "latest")
    if digest:
        conversion.set("image.digest", digest)
    ours = str(conversion.chart.values["image"]["repository"])
    if not repository.endswith(ours):
        if "binDir" not in conversion.values["image"]:
            conversion.set("image.binDir", "")
        conversion.note(
            f"{reference} needs vllm and python3 on its PATH (or image.binDir), and the versions "
            f"of vLLM, LMCache and NIXL that {ours}:{conversion.chart.values['image']['tag']} has"
        )
