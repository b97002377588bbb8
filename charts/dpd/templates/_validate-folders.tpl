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
{{- $env := (include "dpd.env" (merge (dict "own" list) .) | fromJson).items -}}
{{- $own := dict -}}
{{- range .values.env }}{{ $_ := set $own .name "" }}{{ end -}}
{{- $folders := list -}}
{{- range $variable := $env -}}
{{- with (include "dpd.validate.variable" (dict "root" $.root "variable" $variable) | fromJson).folder -}}
{{- $at := include "dpd.validate.at" (dict "component" $.component "at" $.at "values" $own "key" $variable.name) -}}
{{- $folders = append $folders (dict "at" $at "list" "env" "name" $variable.name "folder" (toString $variable.value) "holds" .) -}}
{{- end -}}
{{- end -}}
{{- if ne .component "router" -}}
{{- $flag := "--download-dir" -}}
{{- range (include "dpd.args.groups" (dict "root" .root "args" .values.args) | fromJson).groups -}}
{{- if include "dpd.args.owned" (dict "name" .name "flags" (dict $flag "")) }}{{ $_ := set $own $flag "" }}{{ end -}}
{{- end -}}
{{- $at := include "dpd.validate.at" (dict "component" .component "at" .at "values" $own "key" $flag) -}}
{{- $folder := include "dpd.args.value" (dict "role" . "flag" $flag) -}}
{{- $folders = append $folders (dict "at" $at "list" "args" "name" $flag "folder" $folder "holds" "weights") -}}
{{- end -}}
{{- $about := dict "scope" . "offline" (include "dpd.validate.offline" $env) -}}
{{- $_ := set $about "mounts" (append (include "dpd.volumeMounts" . | fromYamlArray) (dict "mountPath" "/dev/shm")) -}}
{{- range $folders -}}
{{- if and (hasPrefix "/" .folder) (not (contains "$(" .folder)) }}{{ include "dpd.validate.folder" (merge . $about) }}{{ end -}}
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
{{- else if and $readOnly (not (and $weights .offline)) (or (not $mount) $mount.readOnly) -}}
{{- printf "\n- %s%s: %s is %q, which lies on no volume that the pod can write to, and the container's own file system is read-only; mount one there by %svolumes and %svolumeMounts, or choose a folder below /home/dpd" .at .list .name .folder .at .at -}}
{{- end -}}
{{- end -}}

{{/* "yes" when pods of this environment fetch nothing from Hugging Face: its library takes these words for true. What another object says is not known. */}}
{{- define "dpd.validate.offline" -}}
{{- $offline := "" -}}
{{- range . -}}
{{- if eq .name "HF_HUB_OFFLINE" }}{{ $offline = or (hasKey . "valueFrom") (has (toString .value | upper) (list "1" "ON" "YES" "TRUE")) | ternary "yes" "" }}{{ end -}}
{{- end -}}
{{- $offline -}}
{{- end -}}
