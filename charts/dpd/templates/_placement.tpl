{{/* Affinity of an engine as JSON: by instance type and zone, near the other engines, apart from the other role. */}}
{{- define "dpd.affinity" -}}
{{- $placement := .root.Values.placement -}}
{{- $out := dict -}}
{{- $node := list -}}
{{- with .root.Values.instanceTypes -}}
{{- $spellings := list -}}
{{- range . }}{{ $spellings = concat $spellings (list (printf "ml.%s" (trimPrefix "ml." .)) (trimPrefix "ml." .)) }}{{ end -}}
{{- $node = append $node (dict "key" "node.kubernetes.io/instance-type" "operator" "In" "values" (uniq $spellings)) -}}
{{- end -}}
{{- with $placement.zone -}}
{{- $node = append $node (dict "key" "topology.kubernetes.io/zone" "operator" "In" "values" (list .)) -}}
{{- end -}}
{{- with $node -}}
{{- $terms := list (dict "matchExpressions" .) -}}
{{- $_ := set $out "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms)) -}}
{{- end -}}
{{- if and $placement.sameZone (not $placement.zone) -}}
{{- $term := include "dpd.podTerm" (dict "root" .root "components" (list "prefill" "decode") "key" "topology.kubernetes.io/zone") | fromJson -}}
{{- $_ := set $out "podAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) -}}
{{- end -}}
{{- if $placement.separateNodes -}}
{{- $other := ternary "decode" "prefill" (eq .component "prefill") -}}
{{- $term := include "dpd.podTerm" (dict "root" .root "components" (list $other) "key" "kubernetes.io/hostname") | fromJson -}}
{{- $_ := set $out "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) -}}
{{- end -}}
{{- include "dpd.overlay" (list $out (index .root.Values .component).affinity) -}}
{{- end -}}

{{/* A term of pod affinity over this release's components, as JSON. */}}
{{- define "dpd.podTerm" -}}
{{- $labels := dict "app.kubernetes.io/name" .root.Chart.Name "app.kubernetes.io/instance" .root.Release.Name -}}
{{- $component := dict "key" "app.kubernetes.io/component" "operator" "In" "values" .components -}}
{{- $selector := dict "matchLabels" $labels "matchExpressions" (list $component) -}}
{{- toJson (dict "labelSelector" $selector "topologyKey" .key) -}}
{{- end -}}
