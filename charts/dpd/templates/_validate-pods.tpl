{{/* The part of dpd.validate that knows pods of any kind. */}}

{{- define "dpd.validate.image" -}}
{{- $image := include "dpd.image" . | fromJson -}}
{{- if not (or $image.tag $image.digest) -}}
{{- printf "\n- %simage: %s has neither tag nor digest; set image.tag or image.digest" .at $image.repository -}}
{{- end -}}
{{- end -}}

{{/* What one set of values says of an image. YAML reads a tag such as 1.10 as a number, and forgets the last digit. */}}
{{- define "dpd.validate.repository" -}}
{{- $image := .values.image | default dict -}}
{{- if not (or (kindIs "invalid" $image.tag) (kindIs "string" $image.tag)) -}}
{{- printf "\n- %simage.tag: %v is a number to YAML, which may have changed it; write the tag in quotes, or give it by --set-string" .at $image.tag -}}
{{- end -}}
{{- $repository := $image.repository | default "" -}}
{{- if contains "@" $repository -}}
{{- printf "\n- %simage.repository: %q holds a digest; set image.digest instead" .at $repository -}}
{{- else if regexMatch ":[^/]*$" $repository -}}
{{- printf "\n- %simage.repository: %q holds a tag; set image.tag instead" .at $repository -}}
{{- end -}}
{{- end -}}

{{- define "dpd.validate.pullSecrets" -}}
{{- range .Values.imagePullSecrets }}{{ if kindIs "string" . -}}
{{- printf "\n- imagePullSecrets: %q is a name alone, but Kubernetes takes maps; write it as {name: %s}" . . -}}
{{- end }}{{ end -}}
{{- end -}}

{{/* The line of files/environment.yaml that a variable fits, as JSON; empty if it fits none. */}}
{{- define "dpd.validate.variable" -}}
{{- include "dpd.facts" .root -}}
{{- $variable := .variable -}}
{{- $fact := dict -}}
{{- range .root.facts.environment -}}
{{- if and (regexMatch .pattern $variable.name) (regexMatch (.values | default "") (toString $variable.value)) }}{{ $fact = $fact | default . }}{{ end -}}
{{- end -}}
{{- toJson $fact -}}
{{- end -}}

{{- define "dpd.validate.env" -}}
{{- $seen := list -}}
{{- range $variable := .values.env -}}
{{- $fact := include "dpd.validate.variable" (dict "root" $.root "variable" $variable) | fromJson -}}
{{- with $fact.instead }}{{ printf "\n- %senv: %s is not for setting; %s" $.at $variable.name . }}{{ end -}}
{{- if and $fact.secret $variable.value -}}
{{- printf "\n- %senv: %s is a secret in plain text, which everybody reads who may read the values; %s" $.at $variable.name $fact.secret -}}
{{- end -}}
{{- if and (hasKey $variable "value") (hasKey $variable "valueFrom") -}}
{{- printf "\n- %senv: %s has value and valueFrom, but takes one; remove the other" $.at $variable.name -}}
{{- end -}}
{{- if has $variable.name $seen }}{{ printf "\n- %senv: %s is given twice; keep one" $.at $variable.name }}{{ end -}}
{{- $seen = append $seen $variable.name -}}
{{- end -}}
{{- end -}}

{{/* A probe, and a hook, has one handler; the chart's own stays until it is set to null. */}}
{{- define "dpd.validate.handlers" -}}
{{- $values := include "dpd.values" . | fromJson -}}
{{- $found := pick $values "startupProbe" "readinessProbe" "livenessProbe" -}}
{{- range $hook, $value := pick ($values.lifecycle | default dict) "preStop" "postStart" -}}
{{- $_ := set $found (printf "lifecycle.%s" $hook) $value -}}
{{- end -}}
{{- range $key, $value := $found -}}
{{- $at := include "dpd.validate.at" (merge (dict "key" (splitList "." $key | first)) $) -}}
{{- $handlers := keys (pick $value "httpGet" "exec" "tcpSocket" "grpc" "sleep") | sortAlpha -}}
{{- if gt (len $handlers) 1 -}}
{{- printf "\n- %s%s: has %s, but takes one; set the other to null" $at $key (join " and " $handlers) -}}
{{- else if not $handlers -}}
{{- printf "\n- %s%s: has none of httpGet, exec and the like; add one, or set it to null" $at $key -}}
{{- end -}}
{{- range $handler, $field := dict "httpGet" "port" "tcpSocket" "port" "grpc" "port" "sleep" "seconds" -}}
{{- if and (hasKey $value $handler) (not (hasKey (get $value $handler) $field)) -}}
{{- printf "\n- %s%s.%s.%s: missing, but Kubernetes needs it; set it" $at $key $handler $field -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names of containers beside the chart's own. */}}
{{- define "dpd.validate.containers" -}}
{{- $names := list -}}
{{- range $key := list "initContainers" "sidecars" -}}
{{- range index $.values $key -}}
{{- if has .name (list "engine" "router" "model-copy") -}}
{{- printf "\n- %s%s: %s is a container of the chart; choose another name" $.at $key .name -}}
{{- end -}}
{{- if has .name $names }}{{ printf "\n- %s%s: %s is given twice; choose another name" $.at $key .name }}{{ end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Claims on devices: each that a container names is one of its pod. */}}
{{- define "dpd.validate.claims" -}}
{{- $values := include "dpd.values" . | fromJson -}}
{{- $resources := $values.resources | default dict -}}
{{- if ne .component "router" }}{{ $resources = include "dpd.resources" . | fromJson }}{{ end -}}
{{- $at := include "dpd.validate.at" (merge (dict "key" "resources") .) -}}
{{- $names := list -}}
{{- range $values.resourceClaims }}{{ $names = append $names .name }}{{ end -}}
{{- range $resources.claims -}}
{{- if not (has .name $names) }}{{ printf "\n- %sresources.claims: no claim of the pod is named %s; add it to %sresourceClaims" $at .name $at }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "dpd.validate.volumes" -}}
{{- $shared := has .component (list "prefill" "decode") | ternary .root.Values.engines dict -}}
{{- $names := list -}}
{{- range $shared.volumes }}{{ $names = append $names .name }}{{ end -}}
{{- $own := list -}}
{{- range .values.volumes -}}
{{- if has .name $own }}{{ printf "\n- %svolumes: %s is given twice; keep one" $.at .name }}{{ end -}}
{{- $own = append $own .name -}}
{{- if has .name (list "tmp" "home" "shm" "config" "plugin" "model" "tls") -}}
{{- printf "\n- %svolumes: %s is a volume of the chart; choose another name" $.at .name -}}
{{- end -}}
{{- if hasPrefix "/dev/infiniband" ((.hostPath | default dict).path | default "") -}}
{{- printf "\n- %svolumes: %s mounts /dev/infiniband, which hides the EFA devices of the device plugin; remove it" $.at .name -}}
{{- end -}}
{{- end -}}
{{- $paths := list "/tmp" "/home/dpd" "/etc/dpd" "/opt/dpd/python" "/dev/shm" "/model" "/etc/dpd-tls" -}}
{{- if .root.Values.model.source.huggingFace.cacheHostPath }}{{ $paths = append $paths "/home/dpd/hf" }}{{ end -}}
{{- range .values.volumeMounts -}}
{{- if has (clean .mountPath) $paths }}{{ printf "\n- %svolumeMounts: %s is mounted already; choose another path" $.at .mountPath }}{{ end -}}
{{- if not (has .name (concat $names $own)) }}{{ printf "\n- %svolumeMounts: no volume is named %s; add it to %svolumes" $.at .name $.at }}{{ end -}}
{{- $paths = append $paths (clean .mountPath) -}}
{{- end -}}
{{- end -}}
