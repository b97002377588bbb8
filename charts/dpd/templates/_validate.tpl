{{/*
Every refusal that looks at more than one value, or at more than a schema can. Each check prints a line for each problem:
the key, its value, why it cannot be, and the way out. All problems are shown at once.
*/}}
{{- define "dpd.validate" -}}
{{- $problems := "" -}}
{{- range list "names" "ports" "times" "agreement" -}}
{{- $problems = print $problems (include (printf "dpd.validate.%s" .) $) -}}
{{- end -}}
{{- range $component := list "" "prefill" "decode" "router" -}}
{{- $values := ternary $.Values (get $.Values $component) (empty $component) -}}
{{- $at := empty $component | ternary "" (printf "%s." $component) -}}
{{- $scope := dict "root" $ "component" $component "values" $values "at" $at -}}
{{- $checks := list "labels" "repository" "env" "args" "volumes" "devices" -}}
{{- if $component }}{{ $checks = concat $checks (list "image" "probes") }}{{ end -}}
{{- if has $component (list "prefill" "decode") }}{{ $checks = append $checks "resources" }}{{ end -}}
{{- range $checks -}}
{{- $problems = print $problems (include (printf "dpd.validate.%s" .) $scope) -}}
{{- end -}}
{{- end -}}
{{- if $problems }}{{ fail (printf "these values cannot be used:%s" $problems) }}{{ end -}}
{{- end -}}

{{- define "dpd.validate.names" -}}
{{- $full := include "dpd.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $full) -}}
{{- printf "\n- fullnameOverride: objects would be named %q, but a Service needs a name of a-z, 0-9 and dashes that starts with a letter; set fullnameOverride" $full -}}
{{- end -}}
{{- $grace := int64 .Values.router.terminationGracePeriodSeconds -}}
{{- if lt (float64 $grace) (addf .Values.router.timeouts.drainSeconds 5) -}}
{{- printf "\n- router.terminationGracePeriodSeconds: %d is too short for router.timeouts.drainSeconds (%v) and 5 seconds before it; set it to %v or more" $grace .Values.router.timeouts.drainSeconds (addf .Values.router.timeouts.drainSeconds 5) -}}
{{- end -}}
{{- end -}}

{{/* Times of a transfer, and the threshold that leads to one. */}}
{{- define "dpd.validate.times" -}}
{{- $transfer := .Values.router.timeouts.transferSeconds -}}
{{- $pull := int64 .Values.kvTransfer.pullTimeoutSeconds -}}
{{- $allocation := int64 .Values.kvTransfer.allocationTimeoutSeconds -}}
{{- if lt (float64 $pull) (float64 $transfer) -}}
{{- printf "\n- kvTransfer.pullTimeoutSeconds: %d is less than router.timeouts.transferSeconds (%v), so KV could be freed before its request comes; set it to %v or more" $pull $transfer (ceil $transfer) -}}
{{- end -}}
{{- if gt (float64 $allocation) (float64 $transfer) -}}
{{- printf "\n- kvTransfer.allocationTimeoutSeconds: %d is more than router.timeouts.transferSeconds (%v), so the router would give up before the prefiller does; set it to %v or less" $allocation $transfer (floor $transfer) -}}
{{- end -}}
{{- if and (eq .Values.router.mode "threshold") (gt (int64 .Values.router.threshold) (int64 .Values.model.maxLen)) -}}
{{- printf "\n- router.threshold: %d is more than model.maxLen (%d), so no prompt could reach it; lower it, or set router.mode to never" (int64 .Values.router.threshold) (int64 .Values.model.maxLen) -}}
{{- end -}}
{{- end -}}

{{- define "dpd.validate.ports" -}}
{{- $ports := .Values.kvTransfer.ports -}}
{{- $ranks := int64 .Values.model.tensorParallelSize -}}
{{- range $name := list "init" "alloc" -}}
{{- $first := get $ports $name | int64 -}}
{{- $last := sub (add $first $ranks) 1 -}}
{{- if gt $last 65535 -}}
{{- printf "\n- kvTransfer.ports.%s: %d leaves no room for %d ports, one per rank; set it to %d or less" $name $first $ranks (sub 65536 $ranks) -}}
{{- end -}}
{{- if and (le $first 8000) (ge $last 8000) -}}
{{- printf "\n- kvTransfer.ports.%s: %d to %d, one per rank, takes 8000, on which the engine serves HTTP; choose others" $name $first $last -}}
{{- end -}}
{{- end -}}
{{- $apart := sub (int64 $ports.init) (int64 $ports.alloc) -}}
{{- if and (lt $apart $ranks) (gt $apart (sub 0 $ranks)) -}}
{{- printf "\n- kvTransfer.ports.alloc: %d is too near kvTransfer.ports.init (%d), since each takes a port per rank; keep them %d or more apart" (int64 $ports.alloc) (int64 $ports.init) $ranks -}}
{{- end -}}
{{- if eq (int64 $ports.notify) 8000 -}}
{{- "\n- kvTransfer.ports.notify: 8000 is the port on which the router serves HTTP; choose another" -}}
{{- end -}}
{{- end -}}

{{- define "dpd.validate.labels" -}}
{{- $at := .at -}}
{{- range $key := list "commonLabels" "podLabels" "podAnnotations" -}}
{{- range $name, $_ := index $.values $key -}}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|component|version|part-of|managed-by)|helm\\.sh/chart|checksum/(config|plugin))$" $name -}}
{{- printf "\n- %s%s: %s is written by the chart; remove it" $at $key $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "dpd.validate.image" -}}
{{- $image := include "dpd.image" . | fromJson -}}
{{- if not (or $image.tag $image.digest) -}}
{{- printf "\n- %simage: %s has neither tag nor digest; set image.tag or image.digest" .at $image.repository -}}
{{- end -}}
{{- end -}}

{{- define "dpd.validate.repository" -}}
{{- $repository := (.values.image | default dict).repository | default "" -}}
{{- if contains "@" $repository -}}
{{- printf "\n- %simage.repository: %q holds a digest; set image.digest instead" .at $repository -}}
{{- else if regexMatch ":[^/]*$" $repository -}}
{{- printf "\n- %simage.repository: %q holds a tag; set image.tag instead" .at $repository -}}
{{- end -}}
{{- end -}}

{{- define "dpd.validate.env" -}}
{{- $owned := .root.Files.Get "files/environment.yaml" | fromYamlArray -}}
{{- $seen := list -}}
{{- range $variable := .values.env -}}
{{- $instead := "" -}}
{{- range $owned }}{{ if regexMatch .pattern $variable.name }}{{ $instead = $instead | default .instead }}{{ end }}{{ end -}}
{{- if $instead }}{{ printf "\n- %senv: %s is not for setting; %s" $.at $variable.name $instead }}{{ end -}}
{{- if and (hasKey $variable "value") (hasKey $variable "valueFrom") -}}
{{- printf "\n- %senv: %s has value and valueFrom, but takes one; remove the other" $.at $variable.name -}}
{{- end -}}
{{- if has $variable.name $seen }}{{ printf "\n- %senv: %s is given twice; keep one" $.at $variable.name }}{{ end -}}
{{- $seen = append $seen $variable.name -}}
{{- end -}}
{{- end -}}

{{- define "dpd.validate.probes" -}}
{{- range $probe := list "startupProbe" "readinessProbe" "livenessProbe" -}}
{{- $handlers := list -}}
{{- range $name, $value := index $.values $probe -}}
{{- if and (has $name (list "httpGet" "exec" "tcpSocket" "grpc")) (not (kindIs "invalid" $value)) }}{{ $handlers = append $handlers $name }}{{ end -}}
{{- end -}}
{{- if gt (len $handlers) 1 -}}
{{- printf "\n- %s%s: has %s, but a probe has one; set the other to null" $.at $probe (join " and " $handlers) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "dpd.validate.volumes" -}}
{{- $shared := ternary .root.Values dict (not (empty .component)) -}}
{{- $names := list -}}
{{- range $shared.volumes }}{{ $names = append $names .name }}{{ end -}}
{{- range .values.volumes -}}
{{- $names = append $names .name -}}
{{- if has .name (list "tmp" "home" "shm" "config" "plugin") -}}
{{- printf "\n- %svolumes: %s is a volume of the chart; choose another name" $.at .name -}}
{{- end -}}
{{- if hasPrefix "/dev/infiniband" ((.hostPath | default dict).path | default "") -}}
{{- printf "\n- %svolumes: %s mounts /dev/infiniband, which hides the EFA devices of the device plugin; remove it" $.at .name -}}
{{- end -}}
{{- end -}}
{{- $paths := list "/tmp" "/home/dpd" "/etc/dpd" "/opt/dpd/python" "/dev/shm" -}}
{{- range $shared.volumeMounts }}{{ $paths = append $paths (clean .mountPath) }}{{ end -}}
{{- range .values.volumeMounts -}}
{{- if has (clean .mountPath) $paths }}{{ printf "\n- %svolumeMounts: %s is mounted already; choose another path" $.at .mountPath }}{{ end -}}
{{- if not (has .name $names) }}{{ printf "\n- %svolumeMounts: no volume is named %s; add it to %svolumes" $.at .name $.at }}{{ end -}}
{{- $paths = append $paths (clean .mountPath) -}}
{{- end -}}
{{- end -}}
