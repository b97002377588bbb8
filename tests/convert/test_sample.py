"""The sample manifest, from its file to values and report, as a user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from dpd_local.places import ROOT

from .conftest import HERE, SAMPLE
from .rendering import Helm

ENV = {**os.environ, "PYTHONPATH": str(ROOT / "plugins" / "dpd-convert" / "src")}

VALUES = """\
# Made from the InferenceEndpointConfig llama33-70b-dpd in the namespace inference (sample.yaml).
# helm install llama33-70b-dpd charts/dpd -n inference -f values.yaml
model:
  name: Llama-3-3-70B-Instruct
  source:
    type: s3
    path: llama-3-3-70b-instruct
    s3:
      bucket: example-models
      region: us-west-2
      access: mount
instanceTypes:
  - ml.p5.48xlarge
engines:
  args:
    - --max-num-seqs=64
    - --gpu-memory-utilization=0.75
  env:
    - name: HF_HOME
      value: /var/cache/hf
  resources:
    requests:
      cpu: "96"
      memory: 1500Gi
  volumes:
    - name: hf-home
      emptyDir: {}
  volumeMounts:
    - name: hf-home
      mountPath: /var/cache/hf
prefill:
  args:
    - --enforce-eager
    - --max-num-seqs=16
decode:
  args:
    - --max-num-seqs=32
commonLabels:
  team: search
"""

LEFT = """\
  spec.invocationEndpoint: v1/chat/completions
  spec.replicas: 1
  spec.intelligentRoutingSpec.enabled: true
  spec.intelligentRoutingSpec.routingStrategy: prefixaware
  spec.worker.modelInvocationPort.containerPort: 8081
  spec.worker.modelInvocationPort.name: http
  spec.worker.modelVolumeMount.name: model-weights
  spec.worker.modelVolumeMount.mountPath: /opt/ml/model
  spec.worker.args: /opt/ml/model
  spec.worker.environmentVariables: {"name": "LMCACHE_SAVE_DECODE_CACHE", "value": "False"}
  spec.worker.requestLimits: {"maxConcurrentRequests": 200, "maxQueueSize": 500, \
"overflowStatusCode": 429}
  spec.worker.resources: {"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}
  spec.metrics.enabled: true
"""


def run(*arguments: str, text: str | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "dpd_convert", *arguments],
        cwd=HERE,
        env=ENV,
        input=text,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_sample_becomes_these_values() -> None:
    status, values, _ = run("sample.yaml")
    assert (status, values) == (0, VALUES)


def test_the_report_names_what_is_not_carried_over_and_how_to_install() -> None:
    _, _, report = run("sample.yaml")
    carried, left, notes, install = report.split("\n\n")
    assert carried.startswith("Carried over:\n  spec.modelName -> model.name\n")
    assert "  spec.kvCacheSpec.enableL1Cache -> cache.l1.enabled (the default)\n" in carried
    assert "modelVolumeMount" not in carried
    reasons = left.splitlines()[2::2]
    assert [line for line in left.splitlines()[1::2]] == LEFT.splitlines()
    assert all(len(reason) > 20 and reason.startswith("      ") for reason in reasons)
    assert notes.startswith(
        "To know before installing:\n  - if these are the weights of meta-llama"
    )
    assert install == (
        "Install:\n  helm install llama33-70b-dpd charts/dpd -n inference -f values.yaml\n"
    )


def test_values_go_to_a_file_when_asked_and_the_command_names_it(tmp_path) -> None:
    file = tmp_path / "mine.yaml"
    status, out, report = run("sample.yaml", "--output", str(file))
    assert (status, out) == (0, "")
    assert file.read_text(encoding="utf-8") == VALUES.replace("values.yaml\n", f"{file}\n", 1)
    assert report.endswith(f"-n inference -f {file}\n")


def test_the_readmes_command_does_that(tmp_path) -> None:
    readme = (ROOT / "plugins" / "dpd-convert" / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^```bash\n(.*)\n```$", readme, re.M)
    file = tmp_path / "values.yaml"
    here = command.replace("endpoint.yaml", str(SAMPLE)).replace("values.yaml", str(file))
    done = subprocess.run(["bash", "-c", here], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert file.read_text(encoding="utf-8").endswith(VALUES.partition("model:\n")[2])


def test_standard_input_is_read_too() -> None:
    text = SAMPLE.read_text(encoding="utf-8")
    status, values, _ = run("-", text=text)
    assert status == 0
    assert values == VALUES.replace("(sample.yaml)", "(standard input)")


def test_the_values_render_without_a_word_of_refusal(helm: Helm) -> None:
    manifests = helm.render(VALUES, release="llama33-70b-dpd")
    assert manifests.one("Deployment", "-prefill") and manifests.one("Deployment", "-decode")


def test_without_a_manifest_the_usage_is_shown() -> None:
    status, out, error = run()
    assert (status, out) == (2, "")
    assert "give a manifest, or - for standard input" in error
