{{/* .value as a number: one with a unit after it, of Kubernetes' or of .units; 0 for another text. */}}
{{- define "dpd.amount" -}}
{{- $units := .units | default (dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976) -}}
{{- $number := kindIs "string" .value | ternary (toString .value | regexFind "^[0-9.]+") .value | float64 -}}
{{- $unit := kindIs "string" .value | ternary (toString .value | regexFind "[A-Za-z]*$") "" -}}
{{- printf "%.3f" (mulf $number (get $units $unit | default 1)) -}}
{{- end -}}

{{/* "yes" for resources whose requests must equal their limits: devices and huge pages. */}}
{{- define "dpd.isDevice" -}}
{{- if or (contains "/" .) (hasPrefix "hugepages-" .) }}yes{{ end -}}
{{- end -}}

{{/* Resources in layers laid over each other, as JSON {requests, limits}; a device counts in both, wherever it is given. */}}
{{- define "dpd.resources.layers" -}}
{{- $out := dict "requests" (dict) "limits" (dict) -}}
{{- range $layer := . -}}
{{- with ($layer | default dict).claims }}{{ $_ := set $out "claims" . }}{{ end -}}
{{- range $kind := list "requests" "limits" -}}
{{- range $name, $amount := index ($layer | default dict) $kind -}}
{{- if and (contains "/" $name) (not (kindIs "invalid" $amount)) }}{{ $amount = int64 $amount }}{{ end -}}
{{- range $target := ternary (list "requests" "limits") (list $kind) (include "dpd.isDevice" $name | eq "yes") -}}
{{- $_ := set (get $out $target) $name $amount -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* What the values ask for, for an engine of a role, as JSON {requests, limits}: the role's over the shared ones. */}}
{{- define "dpd.resources.given" -}}
{{- include "dpd.resources.layers" (list .root.Values.engines.resources (index .root.Values .component).resources) -}}
{{- end -}}

{{/*
Resources of an engine's container as JSON: what the instance type gives, and what the values ask for over it. Where only a limit
is asked for, it is the request too, as Kubernetes has it; the instance's request could be above it.
*/}}
{{- define "dpd.resources" -}}
{{- include "dpd.kept" (merge (dict "of" "dpd.resources.merge") .) -}}
{{- end -}}

{{- define "dpd.resources.merge" -}}
{{- $given := include "dpd.resources.given" . | fromJson -}}
{{- $derived := include "dpd.instance.resources" . | fromJson -}}
{{- range $name, $amount := $given.limits -}}
{{- if not (or (kindIs "invalid" $amount) (hasKey $given.requests $name)) }}{{ $_ := unset $derived.requests $name }}{{ end -}}
{{- end -}}
{{- $out := include "dpd.resources.layers" (list $derived $given) | fromJson -}}
{{- range $kind := list "requests" "limits" -}}
{{- range $name, $amount := get $out $kind -}}
{{- if and (include "dpd.isDevice" $name) (eq (toString $amount) "0") }}{{ $_ := unset (get $out $kind) $name }}{{ end -}}
{{- end -}}
{{- end -}}
{{- include "dpd.clean" $out -}}
{{- end -}}

{{/*
What the scheduler counts of an engine pod, as JSON with a number for each resource: all of its containers, with those init containers
that run beside them (restartPolicy Always), or another init container with those before it, where that is more.
*/}}
{{- define "dpd.resources.pod" -}}
{{- include "dpd.kept" (merge (dict "of" "dpd.resources.sum") .) -}}
{{- end -}}

{{- define "dpd.resources.sum" -}}
{{- $values := include "dpd.values" . | fromJson -}}
{{- $sum := dict -}}
{{- $most := dict -}}
{{- $first := concat (include "dpd.model.copy" . | fromJson).containers ($values.initContainers | default list) -}}
{{- $engine := dict "resources" (include "dpd.resources" . | fromJson) "restartPolicy" "Always" -}}
{{- $beside := list -}}
{{- range $values.sidecars }}{{ $beside = append $beside (merge (dict "restartPolicy" "Always") .) }}{{ end -}}
{{- range $container := concat $first (list $engine) $beside -}}
{{- range $name, $amount := include "dpd.resources.requests" $container.resources | fromJson -}}
{{- $total := addf $amount (get $sum $name | default 0.0) -}}
{{- $_ := set $most $name (maxf $total (get $most $name | default 0.0)) -}}
{{- if eq (toString $container.restartPolicy) "Always" }}{{ $_ := set $sum $name $total }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson $most -}}
{{- end -}}

{{/* The requests of a container's resources as numbers, in JSON; a limit alone is a request too. */}}
{{- define "dpd.resources.requests" -}}
{{- $out := dict -}}
{{- if kindIs "map" . -}}
{{- range $amounts := list .limits .requests -}}
{{- if kindIs "map" $amounts -}}
{{- range $name, $amount := $amounts -}}
{{- if not (kindIs "invalid" $amount) }}{{ $_ := set $out $name (include "dpd.amount" (dict "value" $amount) | float64) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* "yes" when the engines of a role move KV over EFA devices, which may come by a claim instead of a limit. */}}
{{- define "dpd.usesEfa" -}}
{{- $resources := include "dpd.resources" . | fromJson -}}
{{- $efa := or (get $resources.limits "vpc.amazonaws.com/efa") $resources.claims -}}
{{- if and (eq .root.Values.kvTransfer.backend "LIBFABRIC") $efa }}yes{{ end -}}
{{- end -}}
