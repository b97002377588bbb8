{{/* "yes" when an autoscaler owns the number of a component's pods, so that the chart must not write it. */}}
{{- define "dpd.autoscaled" -}}
{{- if ne ((include "dpd.values" . | fromJson).autoscaling.type | default "none") "none" }}yes{{ end -}}
{{- end -}}

{{/* The entry `replicas` of a component's workload: none when somebody else owns the number. */}}
{{- define "dpd.replicas" -}}
{{- $replicas := (index .root.Values .component).replicas -}}
{{- if not (or (kindIs "invalid" $replicas) (include "dpd.autoscaled" .)) -}}
replicas: {{ int64 $replicas }}
{{- end -}}
{{- end -}}

{{/* Metadata of an object of a component; .suffix instead of the component ends its name, .annotations are its own. */}}
{{- define "dpd.metadata" -}}
name: {{ .name | default (printf "%s-%s" (include "dpd.fullname" .root) (.suffix | default .component)) | quote }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "dpd.labels" . | nindent 2 }}
{{- with include "dpd.annotations" (dict "root" .root "annotations" .annotations) }}
{{ . }}
{{- end }}
{{- end -}}

{{/* An engine on one node. */}}
{{- define "dpd.engine.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "dpd.metadata" (merge (dict "annotations" (include "dpd.values" . | fromJson).annotations) .) | nindent 2 }}
spec:
  {{- include "dpd.replicas" . | nindent 2 }}
  # Weights of a large model take longer to load than the ten minutes that Kubernetes allows by default.
  progressDeadlineSeconds: 3600
  strategy:
    {{- include "dpd.strategy" . | fromJson | toYaml | nindent 4 }}
  selector:
    matchLabels:
      {{- include "dpd.selector" . | nindent 6 }}
  template:
    {{- include "dpd.engine.pod" . | nindent 4 }}
{{- end -}}

{{/* An engine over several nodes: a group of pods whose first is the leader. */}}
{{- define "dpd.engine.leaderWorkerSet" -}}
{{- $rolling := (include "dpd.strategy" . | fromJson).rollingUpdate | default dict -}}
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  {{- include "dpd.metadata" (merge (dict "annotations" (include "dpd.values" . | fromJson).annotations) .) | nindent 2 }}
spec:
  {{- include "dpd.replicas" . | nindent 2 }}
  networkConfig:
    # Its controller then makes a Service of each group, where a leader has an address before it is ready: it waits for its
    # followers, and they for that address. The one Service of all groups would have the set's own name, which is taken by the chart's.
    subdomainPolicy: UniquePerReplica
  rolloutStrategy:
    type: RollingUpdate
    {{- with $rolling }}
    rollingUpdateConfiguration:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  leaderWorkerTemplate:
    size: {{ include "dpd.nodes" . }}
    restartPolicy: RecreateGroupOnPodRestart
    leaderTemplate:
      {{- include "dpd.engine.pod" (merge (dict "part" "leader") .) | nindent 6 }}
    workerTemplate:
      {{- include "dpd.engine.pod" (merge (dict "part" "worker") .) | nindent 6 }}
{{- end -}}
