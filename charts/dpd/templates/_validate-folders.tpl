{{/* The part of dpd.validate about folders in the containers: on which mount they lie, and whether they can be written. */}}

{{/* The mount of .mounts on which .folder lies, as JSON: the innermost one, and empty if it lies on none. */}}
{{- define "dpd.validate.mountOf" -}}
{{- $mount := dict -}}
{{- $folder := clean .folder -}}
{{- range .mounts -}}
{{- $within := hasPrefix (clean .mountPath | trimSuffix "/" | printf "%s/") (printf "%s/" $folder) -}}
{{- if and $within (gt (len .mountPath) (len ($mount.mountPath | default ""))) }}{{ $mount = . }}{{ end -}}
{{- end -}}
{{- toJson $mount -}}
{{- end -}}

{{/* The volume of prefillers on which the folder of the shared cache lies, as JSON; empty if it is on none of the values. */}}
{{- define "dpd.validate.mounted" -}}
{{- $values := include "dpd.values" (dict "root" . "component" "prefill") | fromJson -}}
{{- $mount := include "dpd.validate.mountOf" (dict "folder" .Values.cache.l2.address "mounts" $values.volumeMounts) | fromJson -}}
{{- $found := dict -}}
{{- range $values.volumes }}{{ if eq .name ($mount.name | default "") }}{{ $found = . }}{{ end }}{{ end -}}
{{- toJson $found -}}
{{- end -}}

{{/*
Variables that name folders of caches, once all values are merged. One in which Hugging Face's files are need not be written by a pod
that fetches nothing.
*/}}
{{- define "dpd.validate.folders" -}}
{{- include "dpd.facts" .root -}}
{{- $source := .root.Values.model.source -}}
{{- $cache := and (ne .component "router") (eq $source.type "huggingFace") $source.huggingFace.cacheHostPath -}}
{{- $readOnly := (include "dpd.securityContext" . | fromJson).readOnlyRootFilesystem -}}
{{- $mounts := append (include "dpd.volumeMounts" . | fromYamlArray) (dict "mountPath" "/dev/shm") -}}
{{- $env := (include "dpd.env" (merge (dict "own" list) .) | fromJson).items -}}
{{- $offline := false -}}
{{- range $env }}{{ if eq .name "HF_HUB_OFFLINE" }}{{ $offline = ne (toString .value) "0" }}{{ end }}{{ end -}}
{{- range $variable := $env -}}
{{- $fact := dict -}}
{{- range $.root.facts.environment }}{{ if regexMatch .pattern $variable.name }}{{ $fact = $fact | default . }}{{ end }}{{ end -}}
{{- if and $fact.folder (hasPrefix "/" (toString $variable.value)) (not (contains "$(" $variable.value)) -}}
{{- $mount := include "dpd.validate.mountOf" (dict "folder" $variable.value "mounts" $mounts) | fromJson -}}
{{- $weights := eq $fact.folder "weights" -}}
{{- $at := include "dpd.validate.envAt" (merge (dict "name" $variable.name) $) -}}
{{- if and $cache $weights (ne ($mount.name | default "") "model") -}}
{{- printf "\n- %senv: %s is %q, so that the weights would not be in model.source.huggingFace.cacheHostPath, which is at /home/dpd/hf; remove one of them" $at $variable.name $variable.value -}}
{{- else if and $readOnly (not (and $weights $offline)) (or (not $mount) $mount.readOnly) -}}
{{- printf "\n- %senv: %s is %q, which lies on no volume that the pod can write to, and the container's own file system is read-only; mount one there by %svolumes and %svolumeMounts, or choose a folder below /home/dpd" $at $variable.name $variable.value $at $at -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Where the variable .name of a component is said: by itself, or by engines. */}}
{{- define "dpd.validate.envAt" -}}
{{- $at := ternary "engines." .at (has .component (list "prefill" "decode")) -}}
{{- range .values.env }}{{ if eq .name $.name }}{{ $at = $.at }}{{ end }}{{ end -}}
{{- $at -}}
{{- end -}}
