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

{{/* Variables and the argument that name folders of caches, once all values are merged. */}}
{{- define "dpd.validate.folders" -}}
{{- include "dpd.facts" .root -}}
{{- $folders := list -}}
{{- range $variable := (include "dpd.env" (merge (dict "own" list) .) | fromJson).items -}}
{{- $fact := dict -}}
{{- range $.root.facts.environment }}{{ if regexMatch .pattern $variable.name }}{{ $fact = $fact | default . }}{{ end }}{{ end -}}
{{- with $fact.folder -}}
{{- $at := include "dpd.validate.envAt" (merge (dict "name" $variable.name) $) -}}
{{- $folders = append $folders (dict "at" $at "list" "env" "name" $variable.name "folder" (toString $variable.value) "holds" .) -}}
{{- end -}}
{{- end -}}
{{- if ne .component "router" -}}
{{- $flag := "--download-dir" -}}
{{- $at := include "dpd.validate.argAt" (merge (dict "flag" $flag) .) -}}
{{- $folder := include "dpd.args.value" (dict "role" . "flag" $flag) -}}
{{- $folders = append $folders (dict "at" $at "list" "args" "name" $flag "folder" $folder "holds" "weights") -}}
{{- end -}}
{{- $mounts := append (include "dpd.volumeMounts" . | fromYamlArray) (dict "mountPath" "/dev/shm") -}}
{{- range $folders -}}
{{- if and (hasPrefix "/" .folder) (not (contains "$(" .folder)) }}{{ include "dpd.validate.folder" (merge . (dict "scope" $ "mounts" $mounts)) }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Whether .folder can be what .name says. One in which Hugging Face's files are need not be written by a pod that fetches nothing. */}}
{{- define "dpd.validate.folder" -}}
{{- $source := .scope.root.Values.model.source -}}
{{- $cache := and (ne .scope.component "router") (eq $source.type "huggingFace") $source.huggingFace.cacheHostPath -}}
{{- $readOnly := (include "dpd.securityContext" .scope | fromJson).readOnlyRootFilesystem -}}
{{- $mount := include "dpd.validate.mountOf" . | fromJson -}}
{{- $weights := eq .holds "weights" -}}
{{- if and $cache $weights (ne ($mount.name | default "") "model") -}}
{{- printf "\n- %s%s: %s is %q, so that the weights would not be in model.source.huggingFace.cacheHostPath, which is at /home/dpd/hf; remove one of them" .at .list .name .folder -}}
{{- else if and $readOnly (not (and $weights (include "dpd.validate.offline" .scope))) (or (not $mount) $mount.readOnly) -}}
{{- printf "\n- %s%s: %s is %q, which lies on no volume that the pod can write to, and the container's own file system is read-only; mount one there by %svolumes and %svolumeMounts, or choose a folder below /home/dpd" .at .list .name .folder .at .at -}}
{{- end -}}
{{- end -}}

{{/* "yes" when a component's pods fetch nothing from Hugging Face: its library takes these words for true. What another object says is not known. */}}
{{- define "dpd.validate.offline" -}}
{{- $offline := "" -}}
{{- range (include "dpd.env" (merge (dict "own" list) .) | fromJson).items -}}
{{- if eq .name "HF_HUB_OFFLINE" }}{{ $offline = or (hasKey . "valueFrom") (has (toString .value | upper) (list "1" "ON" "YES" "TRUE")) | ternary "yes" "" }}{{ end -}}
{{- end -}}
{{- $offline -}}
{{- end -}}

{{/* Where the variable .name of a component is said: by itself, or by engines. */}}
{{- define "dpd.validate.envAt" -}}
{{- $at := ternary "engines." .at (has .component (list "prefill" "decode")) -}}
{{- range .values.env }}{{ if eq .name $.name }}{{ $at = $.at }}{{ end }}{{ end -}}
{{- $at -}}
{{- end -}}

{{/* Where the argument .flag of a role is said: by itself, or by engines. */}}
{{- define "dpd.validate.argAt" -}}
{{- $at := "engines." -}}
{{- range (include "dpd.args.groups" (dict "root" .root "args" .values.args) | fromJson).groups -}}
{{- if include "dpd.args.owned" (dict "name" .name "flags" (dict $.flag "")) }}{{ $at = $.at }}{{ end -}}
{{- end -}}
{{- $at -}}
{{- end -}}
