{{/*
Every refusal that looks at more than one value, or at more than a schema can. Each check prints a line for each problem:
the key, its value, why it cannot be, and the way out. All problems are shown at once. The checks are in _validate-*.tpl.
*/}}
{{- define "dpd.validate" -}}
{{- $problems := "" -}}
{{- range list "names" "pullSecrets" "ports" "times" "agreement" "placement" "room" "source" "cache" "accounts" "replicas" "exposure" -}}
{{- $problems = print $problems (include (printf "dpd.validate.%s" .) $) -}}
{{- end -}}
{{- range $component := list "" "engines" "prefill" "decode" "router" -}}
{{- $values := ternary $.Values (get $.Values $component) (empty $component) -}}
{{- $at := empty $component | ternary "" (printf "%s." $component) -}}
{{- $scope := dict "root" $ "component" $component "values" $values "at" $at -}}
{{- $checks := list "labels" "repository" "env" "args" "volumes" "containers" "devices" "twice" -}}
{{- if has $component (list "prefill" "decode" "router") }}{{ $checks = concat $checks (list "image" "claims" "amounts" "handlers" "contexts" "strategy" "stopping" "scaling" "budget" "folders" "beside") }}{{ end -}}
{{- if has $component (list "prefill" "decode") }}{{ $checks = concat $checks (list "resources" "fit" "nodes" "memory" "awake") }}{{ end -}}
{{- range $checks -}}
{{- $problems = print $problems (include (printf "dpd.validate.%s" .) $scope) -}}
{{- end -}}
{{- end -}}
{{- if $problems }}{{ fail (printf "these values cannot be used:%s" (splitList "\n" $problems | uniq | join "\n")) }}{{ end -}}
{{- end -}}

{{/* Where .key of a component is said: "prefill." and the like, or "engines." when the role says nothing of its own. */}}
{{- define "dpd.validate.at" -}}
{{- and (has .component (list "prefill" "decode")) (not (hasKey .values .key)) | ternary "engines." .at -}}
{{- end -}}

{{- define "dpd.validate.names" -}}
{{- $full := include "dpd.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $full) -}}
{{- printf "\n- fullnameOverride: objects would be named %q, but a Service needs a name of a-z, 0-9 and dashes that starts with a letter; set fullnameOverride" $full -}}
{{- end -}}
{{- /*
The followers of an engine over several nodes are a StatefulSet "<name>-prefill-<engine>", and each pod has a label of that name and
"-<hash>". A label has 63 characters, 9 are "-prefill-", 4 the number of up to 10000 engines, and 11 the hash with its dash.
*/ -}}
{{- range list "prefill" "decode" -}}
{{- if and (gt (len $full) 39) (ne (include "dpd.nodes" (dict "root" $ "component" .)) "1") -}}
{{- printf "\n- fullnameOverride: objects would be named %q (%d characters), but the pods of engines over several nodes need a name of at most 39; set fullnameOverride to a shorter one" $full (len $full) -}}
{{- end -}}
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
{{- $ranks := include "dpd.ranks" . | int64 -}}
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
{{- range $key := list "commonLabels" "commonAnnotations" "podLabels" "podAnnotations" -}}
{{- range $name, $_ := index $.values $key -}}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|component|version|part-of|managed-by)|helm\\.sh/chart|checksum/(config|plugin))$" $name -}}
{{- printf "\n- %s%s: %s is written by the chart; remove it" $at $key $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
