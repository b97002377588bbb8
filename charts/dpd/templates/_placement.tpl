{{/* Affinity of an engine as JSON: which nodes it takes, near what, apart from what. The user's parts replace whole parts of it. */}}
{{- define "dpd.affinity" -}}
{{- $out := dict -}}
{{- with (include "dpd.placement.nodes" .root | fromJson).expressions -}}
{{- $terms := list (dict "matchExpressions" .) -}}
{{- $_ := set $out "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms)) -}}
{{- end -}}
{{- $near := list -}}
{{- range (include "dpd.placement.together" .root | fromJson).keys -}}
{{- $near = append $near (include "dpd.podTerm" (dict "root" $.root "components" (list "prefill" "decode") "key" .) | fromJson) -}}
{{- end -}}
{{- with $near }}{{ $_ := set $out "podAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" .) }}{{ end -}}
{{- if include "dpd.placement.packed" . -}}
{{- $term := include "dpd.podTerm" (dict "root" .root "components" (list .component) "key" "kubernetes.io/hostname") | fromJson -}}
{{- $packed := dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term)) -}}
{{- $_ := set $out "podAffinity" (merge $packed ($out.podAffinity | default dict)) -}}
{{- end -}}
{{- if .root.Values.placement.separateNodes -}}
{{- $other := ternary "decode" "prefill" (eq .component "prefill") -}}
{{- $term := include "dpd.podTerm" (dict "root" .root "components" (list $other) "key" "kubernetes.io/hostname") | fromJson -}}
{{- $_ := set $out "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) -}}
{{- end -}}
{{- range $layer := list .root.Values.engines.affinity (index .root.Values .component).affinity -}}
{{- range $part, $value := $layer }}{{ $_ := set $out $part $value }}{{ end -}}
{{- end -}}
{{- include "dpd.clean" $out -}}
{{- end -}}

{{/* What a node must have to run engines, as JSON {expressions}. */}}
{{- define "dpd.placement.nodes" -}}
{{- $placement := .Values.placement -}}
{{- $out := list -}}
{{- with .Values.instanceTypes -}}
{{- $spellings := list -}}
{{- range . }}{{ $spellings = concat $spellings (list (printf "ml.%s" (trimPrefix "ml." .)) (trimPrefix "ml." .)) }}{{ end -}}
{{- $out = append $out (dict "key" "node.kubernetes.io/instance-type" "operator" "In" "values" (uniq $spellings)) -}}
{{- end -}}
{{- with $placement.zone -}}
{{- $out = append $out (dict "key" "topology.kubernetes.io/zone" "operator" "In" "values" (list .)) -}}
{{- end -}}
{{- with $placement.placementGroup.name -}}
{{- $out = append $out (dict "key" $placement.placementGroup.label "operator" "In" "values" (list .)) -}}
{{- end -}}
{{- if $placement.healthyNodesOnly -}}
{{- $bad := list "Unschedulable" "UnschedulablePendingReplacement" "UnschedulablePendingReboot" -}}
{{- $out = append $out (dict "key" "sagemaker.amazonaws.com/node-health-status" "operator" "NotIn" "values" $bad) -}}
{{- end -}}
{{- if $placement.deepHealthCheck -}}
{{- $out = append $out (dict "key" "sagemaker.amazonaws.com/deep-health-check-status" "operator" "In" "values" (list "Passed")) -}}
{{- end -}}
{{- with $placement.instanceGroups -}}
{{- $out = append $out (dict "key" "sagemaker.amazonaws.com/instance-group-name" "operator" "In" "values" .) -}}
{{- end -}}
{{- toJson (dict "expressions" $out) -}}
{{- end -}}

{{/* Node labels on which all engines of the release must agree, as JSON {keys}. */}}
{{- define "dpd.placement.together" -}}
{{- $placement := .Values.placement -}}
{{- $keys := list -}}
{{- if and $placement.sameZone (not $placement.zone) }}{{ $keys = append $keys "topology.kubernetes.io/zone" }}{{ end -}}
{{- with $placement.networkNodeLayer | int64 }}{{ $keys = append $keys (printf "topology.k8s.aws/network-node-layer-%d" .) }}{{ end -}}
{{- if $placement.sameNode }}{{ $keys = append $keys "kubernetes.io/hostname" }}{{ end -}}
{{- toJson (dict "keys" $keys) -}}
{{- end -}}

{{/*
How many engines of a role fit on a node, if several do and the roles are kept apart; then a role fills a node before it takes
another. Spread out, one role could take a place on every node, and leave none to the other for good.
*/}}
{{- define "dpd.placement.packed" -}}
{{- $all := get (include "dpd.instance" . | fromJson) "gpus" | int64 -}}
{{- $gpus := include "dpd.gpus" . | int64 -}}
{{- if and .root.Values.placement.separateNodes $gpus (gt $all $gpus) }}{{ div $all $gpus }}{{ end -}}
{{- end -}}

{{/* A term of pod affinity over this release's components, as JSON. */}}
{{- define "dpd.podTerm" -}}
{{- $labels := dict "app.kubernetes.io/name" .root.Chart.Name "app.kubernetes.io/instance" .root.Release.Name -}}
{{- $component := dict "key" "app.kubernetes.io/component" "operator" "In" "values" .components -}}
{{- $selector := dict "matchLabels" $labels "matchExpressions" (list $component) -}}
{{- toJson (dict "labelSelector" $selector "topologyKey" .key) -}}
{{- end -}}

{{/* How pods of a component spread, as JSON {constraints}; one without a selector gets the component's. */}}
{{- define "dpd.spread" -}}
{{- $selector := dict "matchLabels" (include "dpd.selector" . | fromYaml) -}}
{{- $default := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" -}}
{{- $packed := eq .component "router" | ternary "" (include "dpd.placement.packed" .) -}}
{{- /* No more on a node than fit there, which is always so: without any constraint the scheduler would spread them by its own. */ -}}
{{- with $packed }}{{ $default = dict "maxSkew" (int64 .) "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "DoNotSchedule" }}{{ end -}}
{{- $out := list -}}
{{- range (include "dpd.values" . | fromJson).topologySpreadConstraints | default (list $default) -}}
{{- $out = append $out (hasKey . "labelSelector" | ternary . (set (deepCopy .) "labelSelector" $selector)) -}}
{{- end -}}
{{- toJson (dict "constraints" $out) -}}
{{- end -}}
