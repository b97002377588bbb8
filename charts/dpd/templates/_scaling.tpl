{{/* The workload of a component, as an autoscaler names it, as JSON. */}}
{{- define "dpd.scaling.target" -}}
{{- $target := dict "apiVersion" "apps/v1" "kind" "Deployment" -}}
{{- if and (ne .component "router") (ne (include "dpd.nodes" .) "1") -}}
{{- $target = dict "apiVersion" "leaderworkerset.x-k8s.io/v1" "kind" "LeaderWorkerSet" -}}
{{- end -}}
{{- toJson (merge (dict "name" (printf "%s-%s" (include "dpd.fullname" .root) .component)) $target) -}}
{{- end -}}

{{/*
Metadata of an autoscaler. Argo CD makes it one wave after its workload: without that it is degraded, which holds up the sync,
and KEDA refuses one that goes by CPU.
*/}}
{{- define "dpd.scaling.metadata" -}}
{{- $wave := "argocd.argoproj.io/sync-wave" -}}
{{- $workload := include "dpd.overlay" (list .root.Values.commonAnnotations (include "dpd.values" . | fromJson).annotations) | fromJson -}}
{{- include "dpd.metadata" (merge (dict "annotations" (dict $wave (get $workload $wave | int | add1 | toString))) .) -}}
{{- end -}}

{{/* How fast the number changes, as JSON: up at once; down after scaleDownSeconds, and engines one by one, since each has requests to end. */}}
{{- define "dpd.scaling.behavior" -}}
{{- $down := dict "stabilizationWindowSeconds" (include "dpd.values" . | fromJson).autoscaling.scaleDownSeconds -}}
{{- if ne .component "router" -}}
{{- $_ := set $down "policies" (list (dict "type" "Pods" "value" 1 "periodSeconds" 60)) -}}
{{- end -}}
{{- include "dpd.clean" (dict "scaleUp" (dict "stabilizationWindowSeconds" 0) "scaleDown" $down) -}}
{{- end -}}

{{/* A HorizontalPodAutoscaler of a component, if it is to have one. */}}
{{- define "dpd.hpa" -}}
{{- $scaling := (include "dpd.values" . | fromJson).autoscaling -}}
{{- if eq $scaling.type "hpa" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "dpd.scaling.metadata" . | nindent 2 }}
spec:
  scaleTargetRef:
    {{- include "dpd.scaling.target" . | fromJson | toYaml | nindent 4 }}
  minReplicas: {{ int64 $scaling.minReplicas }}
  maxReplicas: {{ int64 $scaling.maxReplicas }}
  metrics:
    {{- (include "dpd.hpa.metrics" . | fromJson).metrics | toYaml | nindent 4 }}
  behavior:
    {{- include "dpd.scaling.behavior" . | fromJson | toYaml | nindent 4 }}
{{- end -}}
{{- end -}}

{{/* A ScaledObject of KEDA for a component, if it is to have one. */}}
{{- define "dpd.scaledObject" -}}
{{- $scaling := (include "dpd.values" . | fromJson).autoscaling -}}
{{- if eq $scaling.type "keda" -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "dpd.scaling.metadata" . | nindent 2 }}
spec:
  scaleTargetRef:
    {{- include "dpd.scaling.target" . | fromJson | toYaml | nindent 4 }}
  minReplicaCount: {{ int64 $scaling.minReplicas }}
  maxReplicaCount: {{ int64 $scaling.maxReplicas }}
  {{- if hasKey $scaling "scaleDownSeconds" }}
  # Of the last step, to 0; the steps before it go by the behavior.
  cooldownPeriod: {{ int64 $scaling.scaleDownSeconds }}
  {{- end }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        {{- include "dpd.scaling.behavior" . | fromJson | toYaml | nindent 8 }}
  triggers:
    {{- (include "dpd.keda.triggers" . | fromJson).triggers | toYaml | nindent 4 }}
{{- end -}}
{{- end -}}

{{/*
The PodDisruptionBudget of a component, if it is to have one. It counts pods: of an engine over several nodes any pod that goes
takes all with it, so that no more engines are away than the budget says, but the next one waits until the first is back.
*/}}
{{- define "dpd.podDisruptionBudget" -}}
{{- $budget := (include "dpd.values" . | fromJson).podDisruptionBudget | default dict -}}
{{- if or (hasKey $budget "maxUnavailable") (hasKey $budget "minAvailable") -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "dpd.metadata" . | nindent 2 }}
spec:
  {{- toYaml $budget | nindent 2 }}
  selector:
    matchLabels:
      {{- include "dpd.selector" . | nindent 6 }}
{{- end -}}
{{- end -}}
