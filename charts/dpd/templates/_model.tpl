{{/* What a container calls the model: its Hugging Face id, or its folder. */}}
{{- define "dpd.model.path" -}}
{{- $source := .Values.model.source -}}
{{- if eq $source.type "huggingFace" -}}
{{- .Values.model.name -}}
{{- else if and (eq $source.type "s3") (eq $source.s3.access "copy") -}}
/model
{{- else -}}
{{- printf "/model/%s" $source.path | trimSuffix "/" -}}
{{- end -}}
{{- end -}}

{{/* Name of the volume and of the claim that the chart makes for a bucket or file system; another one gets another name, since neither can change. */}}
{{- define "dpd.model.claim" -}}
{{- $source := .Values.model.source -}}
{{- $drawn := pick $source "type" "s3" "fsx" | toJson | sha256sum | trunc 8 -}}
{{- printf "%s-model-%s" (include "dpd.fullname" .) $drawn -}}
{{- end -}}

{{/* "yes" when the chart makes a PersistentVolume and a claim on it. */}}
{{- define "dpd.model.makesClaim" -}}
{{- $source := .Values.model.source -}}
{{- if or (eq $source.type "fsx") (and (eq $source.type "s3") (eq $source.s3.access "mount")) }}yes{{ end -}}
{{- end -}}

{{/* The volume of a component with the model, as JSON {volumes}: none or one. A router needs no weights, so its copy is its own. */}}
{{- define "dpd.model.volumes" -}}
{{- $source := .root.Values.model.source -}}
{{- $engine := ne .component "router" -}}
{{- $volume := dict -}}
{{- if include "dpd.model.makesClaim" .root -}}
{{- $volume = dict "persistentVolumeClaim" (dict "claimName" (include "dpd.model.claim" .root) "readOnly" true) -}}
{{- else if eq $source.type "pvc" -}}
{{- $volume = dict "persistentVolumeClaim" (dict "claimName" $source.pvc.claimName) -}}
{{- else if eq $source.type "hostPath" -}}
{{- $volume = dict "hostPath" (dict "path" $source.hostPath.path "type" "Directory") -}}
{{- else if eq $source.type "image" -}}
{{- $volume = dict "image" (pick $source.image "reference" "pullPolicy") -}}
{{- else if and (eq $source.type "s3") $source.s3.copyHostPath $engine -}}
{{- $volume = dict "hostPath" (dict "path" $source.s3.copyHostPath "type" "Directory") -}}
{{- else if eq $source.type "s3" -}}
{{- $volume = dict "emptyDir" dict -}}
{{- else if and $source.huggingFace.cacheHostPath $engine -}}
{{- $volume = dict "hostPath" (dict "path" $source.huggingFace.cacheHostPath "type" "Directory") -}}
{{- end -}}
{{- toJson (dict "volumes" (empty $volume | ternary list (list (merge (dict "name" "model") $volume)))) -}}
{{- end -}}

{{/* Where a component's container mounts it, as JSON {mounts}. */}}
{{- define "dpd.model.mounts" -}}
{{- $mounts := list -}}
{{- with (include "dpd.model.volumes" . | fromJson).volumes -}}
{{- $cache := eq $.root.Values.model.source.type "huggingFace" -}}
{{- $mounts = list (ternary (dict "name" "model" "mountPath" "/home/dpd/hf") (dict "name" "model" "mountPath" "/model" "readOnly" true) $cache) -}}
{{- end -}}
{{- toJson (dict "mounts" $mounts) -}}
{{- end -}}

{{/* Environment for Hugging Face, as JSON {items}. */}}
{{- define "dpd.model.env" -}}
{{- $items := list -}}
{{- with .Values.model.source -}}
{{- if and (eq .type "huggingFace") .huggingFace.tokenSecret.name -}}
{{- $items = list (dict "name" "HF_TOKEN" "valueFrom" (dict "secretKeyRef" .huggingFace.tokenSecret)) -}}
{{- end -}}
{{- if ne .type "huggingFace" }}{{ $items = list (dict "name" "HF_HUB_OFFLINE" "value" "1") }}{{ end -}}
{{- end -}}
{{- toJson (dict "items" $items) -}}
{{- end -}}

{{/* The container that copies the model from S3 before the pod's own start, as JSON {containers}: none or one. A router needs no weights. */}}
{{- define "dpd.model.copy" -}}
{{- $source := .root.Values.model.source -}}
{{- $containers := list -}}
{{- if and (eq $source.type "s3") (eq $source.s3.access "copy") -}}
{{- $from := printf "s3://%s/%s" $source.s3.bucket $source.path | trimSuffix "/" -}}
{{- $command := list "aws" "s3" "sync" "--only-show-errors" $from "/model" -}}
{{- with $source.s3.region }}{{ $command = concat $command (list "--region" .) }}{{ end -}}
{{- if eq .component "router" -}}
{{- range list "*.safetensors" "*.bin" "*.pt" "*.pth" "*.gguf" "original/*" }}{{ $command = concat $command (list "--exclude" .) }}{{ end -}}
{{- end -}}
{{- $mounts := list (dict "name" "tmp" "mountPath" "/tmp") (dict "name" "home" "mountPath" "/home/dpd") (dict "name" "model" "mountPath" "/model") -}}
{{- $container := dict "name" "model-copy" "image" $source.s3.image "command" $command "volumeMounts" $mounts -}}
{{- $_ := set $container "env" (list (dict "name" "HOME" "value" "/home/dpd") (dict "name" "AWS_MAX_ATTEMPTS" "value" "10")) -}}
{{- $_ := set $container "resources" (dict "requests" (dict "cpu" "1" "memory" "1Gi")) -}}
{{- $_ := set $container "securityContext" (include "dpd.securityContext" . | fromJson) -}}
{{- $containers = list $container -}}
{{- end -}}
{{- toJson (dict "containers" $containers) -}}
{{- end -}}
