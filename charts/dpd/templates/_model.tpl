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

{{/* What names a bucket or file system, as JSON. */}}
{{- define "dpd.model.store" -}}
{{- $source := .Values.model.source -}}
{{- toJson (dict "s3" (pick $source.s3 "bucket" "region") "fsx" (pick $source.fsx "fileSystemId" "dnsName" "mountName") "type" $source.type) -}}
{{- end -}}

{{/* What names the model's files, as JSON: nothing of how they come to the pods. */}}
{{- define "dpd.model.files" -}}
{{- $source := .Values.model.source -}}
{{- $files := dict "path" $source.path "claim" $source.pvc.claimName "folder" $source.hostPath.path "image" $source.image.reference -}}
{{- toJson (merge $files (include "dpd.model.store" . | fromJson)) -}}
{{- end -}}

{{/* Name of the volume and of the claim that the chart makes for a bucket or file system; another one gets another name, since neither can change. */}}
{{- define "dpd.model.claim" -}}
{{- $drawn := merge (dict "mode" (include "dpd.model.accessMode" .)) (include "dpd.model.store" . | fromJson) -}}
{{- $drawn = $drawn | toJson | sha256sum | trunc 8 -}}
{{- printf "%s-model-%s" (include "dpd.fullname" .) $drawn -}}
{{- end -}}

{{/* What the source's driver offers: that of FSx no volume for reading only. Pods mount both for reading only. */}}
{{- define "dpd.model.accessMode" -}}
{{- eq .Values.model.source.type "fsx" | ternary "ReadWriteMany" "ReadOnlyMany" -}}
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
{{- $mount := dict "name" "model" "mountPath" "/model" "readOnly" true -}}
{{- if eq $.root.Values.model.source.type "huggingFace" }}{{ $mount = dict "name" "model" "mountPath" "/home/dpd/hf" }}{{ end -}}
{{- with include "dpd.model.copyFolder" $ }}{{ $_ := set $mount "subPath" . }}{{ end -}}
{{- $mounts = list $mount -}}
{{- end -}}
{{- toJson (dict "mounts" $mounts) -}}
{{- end -}}

{{/* Where a copy from S3 comes from. */}}
{{- define "dpd.model.copySource" -}}
{{- printf "s3://%s/%s" .Values.model.source.s3.bucket .Values.model.source.path | trimSuffix "/" -}}
{{- end -}}

{{/* Folder of an engine's copy within copyHostPath: one for each bucket and path, since the disk outlives them. A pod's own volume has none. */}}
{{- define "dpd.model.copyFolder" -}}
{{- $source := .root.Values.model.source -}}
{{- if and (eq $source.type "s3") $source.s3.copyHostPath (ne .component "router") -}}
{{- include "dpd.model.copySource" .root | sha256sum | trunc 8 -}}
{{- end -}}
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

{{/*
The container that copies the model from S3 before the pod's own start, as JSON {containers}: none or one. A router needs no weights.
It has the component's environment, in which keys, a region or another endpoint may be.
*/}}
{{- define "dpd.model.copy" -}}
{{- $source := .root.Values.model.source -}}
{{- $containers := list -}}
{{- if and (eq $source.type "s3") (eq $source.s3.access "copy") -}}
{{- $values := include "dpd.values" . | fromJson -}}
{{- $to := printf "/model/%s" (include "dpd.model.copyFolder" .) | trimSuffix "/" -}}
{{- /* By default a file of equal size stays, however old it is, and so does one that the bucket has no more. */ -}}
{{- $command := list "aws" "s3" "sync" "--only-show-errors" "--exact-timestamps" "--delete" (include "dpd.model.copySource" .root) $to -}}
{{- with $source.s3.region }}{{ $command = concat $command (list "--region" .) }}{{ end -}}
{{- $weights := list "*.safetensors" "*.bin" "*.pt" "*.pth" "*.gguf" -}}
{{- $excluded := list -}}
{{- if eq .component "router" }}{{ $excluded = append $weights "original/*" }}{{ end -}}
{{- /* What another pod of the node is fetching just now must not be deleted: aws adds eight characters to its name. */ -}}
{{- if include "dpd.model.copyFolder" . }}{{ range $weights }}{{ $excluded = append $excluded (printf "%s.????????" .) }}{{ end }}{{ end -}}
{{- range $excluded }}{{ $command = concat $command (list "--exclude" .) }}{{ end -}}
{{- $mounts := list (dict "name" "tmp" "mountPath" "/tmp") (dict "name" "home" "mountPath" "/home/dpd") (dict "name" "model" "mountPath" "/model") -}}
{{- $container := dict "name" "model-copy" "image" $source.s3.image "command" $command "volumeMounts" $mounts -}}
{{- $own := list (dict "name" "HOME" "value" "/home/dpd") (dict "name" "AWS_MAX_ATTEMPTS" "value" "10") -}}
{{- $_ := set $container "env" (include "dpd.mergeBy" (dict "key" "name" "lists" (list $own $values.env)) | fromJson).items -}}
{{- with $values.envFrom }}{{ $_ := set $container "envFrom" . }}{{ end -}}
{{- $_ := set $container "resources" (dict "requests" (dict "cpu" "1" "memory" "1Gi")) -}}
{{- $_ := set $container "securityContext" (include "dpd.securityContext" . | fromJson) -}}
{{- $containers = list $container -}}
{{- end -}}
{{- toJson (dict "containers" $containers) -}}
{{- end -}}
